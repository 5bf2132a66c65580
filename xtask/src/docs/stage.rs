//! Prepares the pages of the book for the build: copies at their paths in the repository, with links that work in the book.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Context;
use e2e_tools::pages::{SUMMARY, listed, resolve};

use super::links::{Change, with_links};

const README: &str = "README.md";

/// Returns all files of the book's source, by their paths in the book.
pub(crate) fn pages(root: &Path, repository: Option<&str>) -> anyhow::Result<Vec<(String, String)>> {
    let read =
        |path: &str| fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"));
    let summary = read(SUMMARY)?;
    let listed = listed(&summary);
    let book = Book { pages: listed.iter().map(String::as_str).collect(), repository };
    let mut files = Vec::with_capacity(listed.len());
    for path in &listed {
        files.push((path.clone(), book.page(path, &read(path)?)));
    }
    files.push(("SUMMARY.md".to_owned(), contents(&summary)));
    Ok(files)
}

/// Returns the contents with paths relative to the root of the repository.
fn contents(summary: &str) -> String {
    with_links(summary, |target| resolve(SUMMARY, target).map_or(Change::Keep, Change::To))
}

struct Book<'a> {
    pages: BTreeSet<&'a str>,
    repository: Option<&'a str>,
}

impl Book<'_> {
    fn page(&self, path: &str, text: &str) -> String {
        with_links(text, |link| {
            let (target, anchor) = link.split_at(link.find('#').unwrap_or(link.len()));
            if target.is_empty() || target.contains(':') {
                return Change::Keep;
            }
            let Some(to) = resolve(path, target) else { return Change::Unlink };
            // mdbook renders README.md as index.html of the same folder, but does not rewrite links to README.md.
            let index = format!("{to}/{README}");
            if self.pages.contains(index.trim_start_matches('/')) {
                return Change::To(format!("{}/index.md{anchor}", target.trim_end_matches('/')));
            }
            if self.pages.contains(to.as_str()) {
                let folder = target.strip_suffix(README);
                return folder.map_or(Change::Keep, |folder| Change::To(format!("{folder}index.md{anchor}")));
            }
            let there = self.repository.map(|url| format!("{}/{to}{anchor}", url.trim_end_matches('/')));
            there.map_or(Change::Unlink, Change::To)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Book, contents};

    #[test]
    fn links_become_pages_repository_links_or_text() {
        let pages = ["docs/a.md", "docs/b.md", "README.md", "docs/decisions/README.md"].into_iter().collect();
        let text = "[b](b.md#x) [r](../README.md) [d](decisions/) [s](../src/a.rs#L1) [w](https://e.example) [h](#h)\n";
        let book = Book { pages, repository: None };
        assert_eq!(
            book.page("docs/a.md", text),
            "[b](b.md#x) [r](../index.md) [d](decisions/index.md) s [w](https://e.example) [h](#h)\n"
        );
        let book = Book { repository: Some("https://git.example/r/"), ..book };
        let page = book.page("docs/a.md", text);
        assert!(page.contains("[s](https://git.example/r/src/a.rs#L1)"), "{page}");
    }

    #[test]
    fn contents_have_paths_from_the_root() {
        let summary = "# Summary\n\n[R](../README.md)\n\n# Guides\n\n- [A](clouds/a.md)\n";
        assert_eq!(contents(summary), "# Summary\n\n[R](README.md)\n\n# Guides\n\n- [A](docs/clouds/a.md)\n");
    }
}
