// The theme puts wide tables into regions that scroll. Not every browser lets the keyboard reach them by itself.
new MutationObserver(() => {
  for (const region of document.querySelectorAll(".md-typeset__scrollwrap")) {
    if (region.scrollWidth > region.clientWidth) region.tabIndex = 0;
  }
}).observe(document.body, { childList: true, subtree: true });
