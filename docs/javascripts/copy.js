// Copy an example without its prompts, and without what it prints.
for (const code of document.querySelectorAll("pre > code")) {
  const lines = code.textContent.trim().split("\n");
  if (/^(\$|>>>) /.test(lines[0])) {
    const typed = lines.filter((line) => /^(\$|>>>|\.\.\.)( |$)/.test(line));
    code.dataset.copy = typed.map((line) => line.replace(/^(\$|>>>|\.\.\.) ?/, "")).join("\n");
  }
}
