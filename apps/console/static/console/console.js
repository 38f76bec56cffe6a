// Times say how long ago they were, in the reader's own zone; a page that is not kept fresh any more says so.
(() => {
  "use strict";

  const UNITS = [["d", 86400], ["h", 3600], ["min", 60]];

  const ago = (seconds) => {
    const past = seconds >= 0;
    const amount = Math.abs(seconds);
    const [unit, size] = UNITS.find(([, size]) => amount >= 2 * size) || ["s", 1];
    const told = `${Math.floor(amount / size)} ${unit}`;
    return past ? `${told} ago` : `in ${told}`;
  };

  const tell = (time) => {
    const at = new Date(time.dateTime);
    if (isNaN(at)) return;
    const told = ago((Date.now() - at) / 1000);
    if (time.textContent !== told) time.textContent = told;
    if (!time.title) time.title = `${at.toLocaleString()} (${time.dateTime})`;
  };

  const tellAll = () => document.querySelectorAll("time.c-time").forEach(tell);

  // What could not be asked for is not shown as if it were still true.
  const stale = (yes) => document.documentElement.classList.toggle("c-stale", yes);

  document.addEventListener("DOMContentLoaded", () => {
    tellAll();
    setInterval(tellAll, 1000);
    document.body.addEventListener("htmx:afterSwap", tellAll);
    document.body.addEventListener("htmx:sendError", () => stale(true));
    document.body.addEventListener("htmx:timeout", () => stale(true));
    document.body.addEventListener("htmx:afterRequest", (event) => stale(!event.detail.successful));
    // Somebody who has been signed out meanwhile is shown the page where one signs in, not a page within a page.
    document.body.addEventListener("htmx:beforeSwap", (event) => {
      const asked = new URL(event.detail.pathInfo.finalRequestPath || location.href, location.href);
      const given = event.detail.xhr.responseURL ? new URL(event.detail.xhr.responseURL) : asked;
      if (given.pathname !== asked.pathname) {
        event.detail.shouldSwap = false;
        location.reload();
      }
    });
    // Copying what stands beside the button.
    document.body.addEventListener("click", (event) => {
      const button = event.target.closest("button[data-copy]");
      if (!button) return;
      navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent.trim()).then(() => {
        button.textContent = "copied";
        setTimeout(() => { button.textContent = "copy"; }, 1500);
      });
    });
  });
})();
