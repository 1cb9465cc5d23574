"""Contrasts of a page, as a browser measures them."""

CONTRASTS = """() => {
  const channels = colour => colour.match(/[\\d.]+/g).map(Number);
  const linear = c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const shares = [0.2126, 0.7152, 0.0722];
  const luminance = rgb => shares.reduce((sum, share, i) => sum + share * linear(rgb[i] / 255), 0);
  const behind = node => {
    for (; node; node = node.parentElement) {
      const colour = channels(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim(), parent = walker.currentNode.parentElement;
    if (!text || !parent.checkVisibility() || parent.matches(":disabled, option, title")) continue;
    const style = getComputedStyle(parent), svg = parent.namespaceURI.endsWith("svg");
    const [a, b] = [luminance(channels(svg ? style.fill : style.color)), luminance(behind(parent))];
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), text]);
  }
  return found;
}"""
"""Contrast ratios of all texts with their backgrounds, by WCAG 2.1, each with its text."""
