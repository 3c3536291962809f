/** A model of the server's list in words. */

export interface Model {
  name: string;
  default: boolean;
  where: string; // Draftline's cache, another program, or how to get it
  bytes: number; // on disk or, if it is not present, to download
  present: boolean;
  memoryBytes: number; // estimate
  fits: "yes" | "not now" | "no"; // into memory
  licence: string;
  tokensPerSecond?: number | null; // without drafts, predicted
}

const FITS: Record<Model["fits"], string> = {
  yes: "",
  "not now": " (more than is free now)",
  no: " (more than this machine has)",
};

/** A size as people write it: 500 MB, 1.1 GB. */
export function size(bytes: number): string {
  const megabytes = Math.round(bytes / 1e6);
  if (megabytes < 1000) return `${megabytes} MB`;
  return `${(megabytes / 1000).toFixed(megabytes < 9950 ? 1 : 0)} GB`;
}

export function describeModel(model: Model): { description: string; detail: string } {
  const { bytes, present, memoryBytes, fits, licence, where, tokensPerSecond } = model;
  const place = present ? `${size(bytes)} on disk (${where})` : `downloads ${size(bytes)}`;
  const speed = tokensPerSecond ? `about ${tokensPerSecond} tokens/s` : "";
  const parts = [place, `takes ${size(memoryBytes)} of memory${FITS[fits]}`, speed, licence];
  return { description: model.default ? "the default" : "", detail: parts.filter((each) => each).join(" · ") };
}
