// Draw the formulas that pymdownx.arithmatex marks: \\[...\\] in a div, \\(...\\) in a span.
for (const place of document.querySelectorAll(".arithmatex")) {
  const text = place.textContent.trim().slice(2, -2);
  temml.render(text, place, { displayMode: place.tagName === "DIV" });
}
