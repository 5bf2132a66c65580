//! Resolves relative links.

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

/// Returns the relative link from a page to another path of the repository.
#[must_use]
pub fn relative(from: &str, to: &str) -> String {
    let folder: Vec<&str> = from.split('/').collect();
    let folder = folder.split_last().map_or(&[][..], |(_, folder)| folder);
    let to: Vec<&str> = to.split('/').collect();
    let shared = folder.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = folder.iter().skip(shared).map(|_| "..");
    up.chain(to.iter().skip(shared).copied()).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::{relative, resolve};

    #[test]
    fn links_outside_of_the_repository_are_refused() {
        assert_eq!(resolve("docs/clouds/a.md", "../../helm/b.md").as_deref(), Some("helm/b.md"));
        assert_eq!(resolve("README.md", "./docs/").as_deref(), Some("docs"));
        assert_eq!(resolve("README.md", "../x"), None);
        assert_eq!(relative("docs/clouds/a.md", "docs/limits.md"), "../limits.md");
        assert_eq!(relative("README.md", "docs/a.md"), "docs/a.md");
    }
}
