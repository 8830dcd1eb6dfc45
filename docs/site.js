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

// On a phone the menu is opened by a label, which no key reaches: a button in its place.
function addMenu() {
  const label = document.querySelector("label.md-header__button[for='__drawer']");
  const button = document.createElement("button");
  const said = { class: label.className, for: "__drawer", type: "button", "aria-label": "Menu" };
  for (const [name, value] of Object.entries(said)) button.setAttribute(name, value);
  button.append(...label.childNodes);
  button.addEventListener("click", () => document.querySelector("#__drawer").click());
  label.replaceWith(button);
}

// An embedded page is as light or dark as this one, whatever the system says.
function tellScheme(frame) {
  const scheme = document.body.dataset.mdColorScheme === "slate" ? "dark" : "light";
  frame.contentWindow.postMessage({ scheme }, "*");
}

function tellFrames() {
  document.querySelectorAll(".md-content iframe").forEach(tellScheme);
}

function mend() {
  document.querySelector(".md-search").setAttribute("aria-label", "Search");
  document
    .querySelectorAll(".md-code__nav")
    .forEach((nav, number) => nav.setAttribute("aria-label", `Code ${number + 1}`));
  document
    .querySelectorAll(".md-typeset p > img:only-child")
    .forEach((picture) => picture.parentElement.classList.add("picture"));
  document
    .querySelectorAll(".md-typeset__scrollwrap, .md-typeset .picture, .md-typeset pre > code")
    .forEach(reach);
}

addMenu();
mend();
document
  .querySelectorAll(".md-content iframe")
  .forEach((frame) => frame.addEventListener("load", () => tellScheme(frame)));
tellFrames();
const schemes = { attributes: true, attributeFilter: ["data-md-color-scheme"] };
new MutationObserver(tellFrames).observe(document.body, schemes);
new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
addEventListener("load", mend);
addEventListener("resize", mend);
