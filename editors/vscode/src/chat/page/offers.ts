/** The list of what a question can name, while @ or # is being typed. */

/// <reference lib="dom" />

import { mentionOf, TOPICS, typedMention } from "../mentions";

export class Offers {
  private offers: { label: string; text: string }[] = [];
  private chosen = 0;
  private id = 0; // of the latest request

  constructor(
    private readonly list: HTMLElement,
    private readonly box: HTMLTextAreaElement,
    private readonly request: (id: number, query: string) => void,
  ) {
    box.addEventListener("blur", () => { this.hide(); });
  }

  /** The text has changed: offers what fits the mention before the cursor. */
  follow(): void {
    const typed = typedMention(this.box.value, this.box.selectionStart);
    this.id += 1;
    if (!typed) {
      this.hide();
    } else if (typed.mark === "@") {
      this.request(this.id, typed.query);
    } else {
      this.draw(TOPICS.filter((name) => name.startsWith(typed.query)).map((name) => ({ label: `#${name}`, text: `#${name}` })));
    }
  }

  /** The files for a request, which are of no use any more if a newer one was made. */
  show(id: number, files: readonly string[]): void {
    if (id === this.id) this.draw(files.map((file) => ({ label: file, text: mentionOf(file) })));
  }

  /** Whether a key was meant for the list. */
  take(event: KeyboardEvent): boolean {
    if (this.list.hidden || event.shiftKey) return false;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) this.choose((this.chosen + step + this.offers.length) % this.offers.length);
    else if (event.key === "Escape") this.hide();
    else if (event.key === "Enter" || event.key === "Tab") this.accept();
    else return false;
    event.preventDefault();
    return true;
  }

  private draw(offers: { label: string; text: string }[]): void {
    this.offers = offers;
    this.list.replaceChildren(
      ...offers.map(({ label }, at) => {
        const row = document.createElement("li");
        row.id = `offer-${at}`;
        row.setAttribute("role", "option");
        row.textContent = label;
        row.addEventListener("mousedown", (event) => {
          event.preventDefault(); // the focus stays in the text
          this.chosen = at;
          this.accept();
        });
        return row;
      }),
    );
    this.list.hidden = offers.length === 0;
    this.box.setAttribute("aria-expanded", String(!this.list.hidden));
    this.choose(0);
  }

  private choose(at: number): void {
    this.chosen = at;
    [...this.list.children].forEach((row, number) => { row.setAttribute("aria-selected", String(number === at)); });
    this.list.children[at]?.scrollIntoView({ block: "nearest" });
    if (this.list.hidden) this.box.removeAttribute("aria-activedescendant");
    else this.box.setAttribute("aria-activedescendant", `offer-${at}`);
  }

  private accept(): void {
    const offer = this.offers[this.chosen];
    const typed = typedMention(this.box.value, this.box.selectionStart);
    if (offer && typed) {
      this.box.setRangeText(`${offer.text} `, typed.start, this.box.selectionStart, "end");
      this.box.dispatchEvent(new Event("input"));
    }
    this.hide();
  }

  private hide(): void {
    this.draw([]);
  }
}
