/** Switches by language: the values of the settings `draftline.ghostText` and `draftline.nextEdit`. */

export type Switch = Readonly<Record<string, boolean>>;

/** Stands for all languages that a switch does not name. */
export const OTHERS = "*";

/** Whether a switch is on in a language. */
export function isOn(value: Switch, language: string): boolean {
  return value[language] ?? value[OTHERS] ?? true;
}

/** The switch with one language, or the others, turned to the opposite of what applies there now. */
export function flipped(value: Switch, language: string): Switch {
  return { ...value, [language]: !isOn(value, language) };
}
