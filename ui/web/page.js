() => {
  const HEALTH_INTERVAL_MS = 3000;
  // Event delegation: a citation opens its passage.
  const open = (id) => {
    const source = document.getElementById(id);
    if (!source) return;
    for (let one = source; one; one = one.parentElement.closest("details")) one.open = true;
    document.querySelectorAll(".source.shown").forEach((one) => one.classList.remove("shown"));
    source.classList.add("shown");
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    source.querySelector("mark")
      ?.scrollIntoView({ block: "center", behavior: calm ? "auto" : "smooth" });
    source.querySelector("summary")?.focus({ preventScroll: true });
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-source]");
    if (link) {
      event.preventDefault();
      open(link.dataset.source);
    }
  });
  // Copy: of an answer its text as it was written, of a block of code the code.
  const copied = async (text) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const area = document.createElement("textarea"); // without TLS, browsers have no clipboard
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  };
  document.addEventListener("click", async ({ target }) => {
    const button = target.closest?.("button.copy");
    if (!button) return;
    await copied(button.dataset.text ?? button.parentElement.querySelector("pre").textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  // The picture of a page whose document was removed.
  document.addEventListener("error", ({ target }) => {
    if (!target.matches?.("img.page")) return;
    const told = document.createElement("p");
    told.className = "note";
    told.textContent = "The page cannot be shown: add the document again.";
    target.closest("a").replaceWith(told);
  }, true);
  // A passage that is opened shows its first mark.
  document.addEventListener("toggle", ({ target }) => {
    const passage = target.open ? target.querySelector(":scope > .passage") : null;
    const mark = passage?.querySelector("mark");
    if (mark) passage.scrollTop = mark.offsetTop - passage.offsetTop - passage.clientHeight / 3;
  }, true);
  // The newest answer stays in sight while it is written, unless the reader has scrolled up. What
  // is longer than the window with its sources is then shown from its beginning.
  let height = 0, wasBusy = false, isNew = true;
  const end = () => document.documentElement.scrollHeight;
  const showWhole = (article) => {
    const room = innerHeight - document.querySelector(".composer").offsetHeight;
    const latest = article.closest(".latest");
    const isLong = latest.offsetHeight > room;
    scrollTo({ top: isLong ? scrollY + latest.getBoundingClientRect().top - 12 : end() });
  };
  const follow = () => {
    const article = document.querySelector("#ask-answer article");
    const busy = article?.hasAttribute("aria-busy") ?? false;
    const atEnd = scrollY + innerHeight > height - 80;
    height = end();
    if (article && !busy && isNew) setTimeout(showWhole, 300, article);
    if (article) isNew = false;
    if (busy && (atEnd || !wasBusy)) scrollTo({ top: height });
    if (article && wasBusy && !busy && atEnd) {
      setTimeout(showWhole, 100, article);
      const picture = document.querySelector("#ask-sources .source[open] img");
      picture?.addEventListener("load", () => showWhole(article), { once: true });
    }
    wasBusy = busy;
  };
  new MutationObserver(follow).observe(document.querySelector("#ask-answer") ?? document.body,
    { subtree: true, childList: true, characterData: true });
  // The skip link leads to the box of the tab.
  const BOXES = "#ask-question textarea, #sum-start, #edit-instruction textarea, #speed-asked textarea";
  document.addEventListener("click", (event) => {
    if (!event.target.closest?.("a.skip")) return;
    event.preventDefault();
    [...document.querySelectorAll(BOXES)].find((one) => one.offsetParent)?.focus();
  });
  // A question that is not sent yet outlives a reload.
  const KEPT = "draftline-question", box = () => document.querySelector("#ask-question textarea");
  addEventListener("pagehide", () => sessionStorage.setItem(KEPT, box()?.value ?? ""));
  const restore = () => {
    if (!box()) return setTimeout(restore, 100);
    box().value ||= sessionStorage.getItem(KEPT) ?? "";
    box().dispatchEvent(new Event("input", { bubbles: true }));
  };
  restore();
  // Without a model, what needs one is disabled; documents and earlier answers can still be read.
  // A server that is started again knows nothing of this page, which is then loaded again.
  const NEEDS_MODEL = `${BOXES}, #ask-ask, #ask-again, #edit-go, #speed-go`;
  const GONE = "The server does not answer. Start draftline serve again: this page then goes on.";
  const banner = document.createElement("p");
  let gone = false;
  banner.id = "gone";
  banner.setAttribute("role", "alert");
  const told = async () => {
    try {
      const answer = await fetch(new URL("/health", location.href), { cache: "no-store" });
      const { status } = await answer.json();
      if (status === "failed") return "The model has failed. Start draftline serve again.";
      return answer.ok ? "" : "The model is loading.";
    } catch {
      return GONE;
    }
  };
  const watch = async () => {
    const problem = document.hidden ? banner.textContent : await told();
    gone ||= problem === GONE;
    if (gone && !problem) return location.reload();
    const busy = gone && document.querySelector("#ask-answer article[aria-busy]");
    if (busy) {
      busy.removeAttribute("aria-busy");
      busy.querySelector(".writing")?.classList.remove("writing");
      busy.querySelector(".status").textContent = "Interrupted: ask again.";
    }
    if (problem !== banner.textContent) {
      banner.textContent = problem;
      if (problem) document.body.prepend(banner);
      else banner.remove();
      for (const one of document.querySelectorAll(NEEDS_MODEL)) one.disabled = problem !== "";
    }
    setTimeout(watch, HEALTH_INTERVAL_MS);
  };
  watch();
  // A file that is dropped beside the drop zone must not replace the page.
  for (const name of ["dragover", "drop"])
    window.addEventListener(name, (event) => event.preventDefault());
}
