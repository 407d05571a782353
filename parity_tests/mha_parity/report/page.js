"use strict";
for (const code of document.querySelectorAll(".replay")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  code.after(button);
}
// In a notebook the page is a frame: as high as what it shows, as bright as what surrounds it.
const frame = window.frameElement;
if (frame) {
  new ResizeObserver(() => { frame.style.height = `${document.body.scrollHeight + 2}px`; })
    .observe(document.body);
  const follow = () => {
    let around = frame;
    let colour = null;
    while (around && !colour) {
      const parts = parent.getComputedStyle(around).backgroundColor.match(/[\d.]+/g).map(Number);
      colour = parts.length === 4 && parts[3] === 0 ? null : parts;
      around = around.parentElement;
    }
    const [red, green, blue] = colour || [255, 255, 255];
    const dark = 0.299 * red + 0.587 * green + 0.114 * blue < 128;
    document.documentElement.style.colorScheme = dark ? "dark" : "light";
  };
  follow();
  new MutationObserver(follow).observe(parent.document.body, { attributes: true });
}
