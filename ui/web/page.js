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
    if (article && !busy && isNew) setTimeout(showWhole, 100, article);
    isNew = false;
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
  // Without a model, what needs one is disabled; documents and earlier answers can still be read.
  const NEEDS_MODEL = "#ask-ask, #ask-again, #ask-question textarea, #sum-start, #edit-go, " +
    "#edit-instruction textarea, #speed-go, #speed-asked textarea";
  const banner = document.createElement("p");
  banner.id = "gone";
  banner.setAttribute("role", "alert");
  const told = async () => {
    try {
      const answer = await fetch(new URL("/health", location.href), { cache: "no-store" });
      const { status } = await answer.json();
      if (status === "failed") return "The model has failed. Start draftline serve again.";
      return answer.ok ? "" : "The model is loading.";
    } catch {
      return "The server does not answer. Start draftline serve again, then reload this page.";
    }
  };
  const watch = async () => {
    const problem = document.hidden ? banner.textContent : await told();
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
