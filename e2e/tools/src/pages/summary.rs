//! The table of contents of the book.

use pulldown_cmark::{Event, Parser, Tag};

/// The page with the table of contents of the book, which uses relative paths.
pub const SUMMARY: &str = "docs/SUMMARY.md";

/// Returns the path in the repository of each page of the book, in the order of the contents.
#[must_use]
pub fn listed(summary: &str) -> Vec<String> {
    let target =
        |event| if let Event::Start(Tag::Link { dest_url, .. }) = event { Some(dest_url) } else { None };
    Parser::new(summary).filter_map(target).filter_map(|target| resolve(SUMMARY, &target)).collect()
}

/// Returns the path in the repository that a link in the page `from` refers to, or `None` if it is outside of the repository.
#[must_use]
pub fn resolve(from: &str, target: &str) -> Option<String> {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => (),
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::{listed, resolve};

    #[test]
    fn pages_have_paths_in_the_repository() {
        let summary = "# Summary\n\n[R](../README.md)\n\n# Guides\n\n- [A](clouds/a.md)\n  - [B](b.md)\n";
        assert_eq!(listed(summary), ["README.md", "docs/clouds/a.md", "docs/b.md"]);
    }

    #[test]
    fn links_outside_of_the_repository_are_refused() {
        assert_eq!(resolve("docs/clouds/a.md", "../../helm/b.md").as_deref(), Some("helm/b.md"));
        assert_eq!(resolve("README.md", "./docs/").as_deref(), Some("docs"));
        assert_eq!(resolve("README.md", "../x"), None);
    }
}
