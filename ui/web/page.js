() => {
  // Event delegation: a citation opens its passage, and a switch changes what the colors show.
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
    const button = event.target.closest?.("[data-show]");
    const turn = button?.closest("[data-view]");
    if (turn) {
      turn.dataset.view = button.dataset.show;
      for (const one of button.parentElement.children)
        one.setAttribute("aria-pressed", String(one === button));
    }
  });
  // A file that is dropped beside the drop zone must not replace the page.
  for (const name of ["dragover", "drop"])
    window.addEventListener(name, (event) => event.preventDefault());
}
