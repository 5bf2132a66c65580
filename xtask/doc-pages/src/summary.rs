//! The contents of the book.

use crate::lines::lines;
use crate::links::links;

/// A page of the book.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The heading that it stands below, such as `Guides`.
    pub part: &'a str,
    /// As it stands in the file, relative to that.
    pub path: &'a str,
    /// From 1 on.
    pub line: usize,
}

/// All pages that a SUMMARY.md lists, in their order.
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
    fn a_page_knows_its_part() {
        let summary = "# Summary\n\n[A](a.md)\n\n# Guides\n\n- [B](../b.md)\n  - [C](c/d.md)\n";
        let found: Vec<_> = entries(summary).iter().map(|entry| (entry.part, entry.path)).collect();
        assert_eq!(found, [("Summary", "a.md"), ("Guides", "../b.md"), ("Guides", "c/d.md")]);
    }
}
