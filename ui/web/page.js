() => {
  // Event delegation: a citation opens its passage.
  const open = (id) => {
    const source = document.getElementById(id);
    if (!source) return;
    source.open = true;
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
  // The newest answer stays in sight while it is written, unless the reader has scrolled up.
  let height = 0, wasBusy = false;
  const follow = () => {
    const busy = document.querySelector("#ask-answer article[aria-busy]") !== null;
    const atEnd = scrollY + innerHeight > height - 80;
    height = document.documentElement.scrollHeight;
    if (busy && (atEnd || !wasBusy)) scrollTo({ top: height });
    wasBusy = busy;
  };
  new MutationObserver(follow).observe(document.querySelector("#ask-answer") ?? document.body,
    { subtree: true, childList: true, characterData: true });
  // A file that is dropped beside the drop zone must not replace the page.
  for (const name of ["dragover", "drop"])
    window.addEventListener(name, (event) => event.preventDefault());
}
