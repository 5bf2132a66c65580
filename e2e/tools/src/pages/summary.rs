//! The table of contents of the book.

use super::lines::lines;
use super::links::links;

/// A page of the book.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The heading above the page's entry, such as `Guides`.
    pub part: &'a str,
    /// The path as written in SUMMARY.md, relative to SUMMARY.md.
    pub path: &'a str,
    /// The line number, from 1.
    pub line: usize,
}

/// Returns all pages that SUMMARY.md lists, in their order.
#[must_use]
pub fn entries(summary: &str) -> Vec<Entry<'_>> {
    let links = links(summary);
    let mut part = "";
    let mut all = Vec::new();
    for line in lines(summary) {
        if let Some(heading) = line.text.strip_prefix("# ") {
            part = heading.trim();
        }
        let of_line = links.iter().filter(|link| link.line == line.number);
        all.extend(of_line.map(|link| Entry { part, path: link.target, line: link.line }));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::entries;

    #[test]
    fn page_has_its_part() {
        let summary = "# Summary\n\n[A](a.md)\n\n# Guides\n\n- [B](../b.md)\n  - [C](c/d.md)\n";
        let found: Vec<_> = entries(summary).iter().map(|entry| (entry.part, entry.path)).collect();
        assert_eq!(found, [("Summary", "a.md"), ("Guides", "../b.md"), ("Guides", "c/d.md")]);
    }
}
