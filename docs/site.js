// What the theme leaves to be wished for: names for screen readers, and boxes that keys can scroll.

// A box that scrolls gets the focus, and the name of the part of the page that it stands in.
function reach(box, number) {
  const scrolls = box.scrollWidth > box.clientWidth + 1;
  const before = [...document.querySelectorAll(".md-content h1, .md-content h2, .md-content h3")].filter(
    (heading) => heading.compareDocumentPosition(box) & Node.DOCUMENT_POSITION_FOLLOWING,
  );
  const part = before.length ? before.at(-1).firstChild.textContent.trim() : document.title;
  const said = { tabindex: "0", role: "region", "aria-label": `${part}, wide part ${number + 1}` };
  for (const [name, value] of Object.entries(said))
    if (!scrolls) box.removeAttribute(name);
    else if (box.getAttribute(name) !== value) box.setAttribute(name, value);
}

function mend() {
  document.querySelector(".md-search").setAttribute("aria-label", "Search");
  document.querySelector("#__drawer").setAttribute("aria-label", "Menu");
  document
    .querySelectorAll(".md-code__nav")
    .forEach((nav, number) => nav.setAttribute("aria-label", `Code ${number + 1}`));
  document
    .querySelectorAll(".md-typeset p > img:only-child")
    .forEach((picture) => picture.parentElement.classList.add("picture"));
  document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset .picture").forEach(reach);
}

mend();
new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
addEventListener("load", mend);
addEventListener("resize", mend);
