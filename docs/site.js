// What the site needs of a script: equations that fit a phone, and replays as dark as the page.
function fit() {
  for (const equation of document.querySelectorAll(".equation")) {
    equation.style.fontSize = "";
    if (equation.scrollWidth > equation.clientWidth)
      equation.style.fontSize = `${Math.max(0.7, 0.99 * equation.clientWidth / equation.scrollWidth)}em`;
  }
}
addEventListener("load", fit);
addEventListener("resize", fit);

for (const frame of document.querySelectorAll(".replay")) {
  const shade = () => {
    const page = frame.contentDocument?.documentElement; // none in a site that is opened from disk
    if (page) page.dataset.theme = document.body.dataset.mdColorScheme === "slate" ? "dark" : "light";
  };
  frame.addEventListener("load", shade);
  new MutationObserver(shade).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
}
