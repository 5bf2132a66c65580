//! Changes that the files of the chart need outside the repository. Pure functions.

use anyhow::Context;

/// The line of values.yaml that `--registry` changes. It must exist once.
const REGISTRY: &str = "\n  registry: \"\"\n";
/// The row of the README with the same default.
const REGISTRY_ROW: &str = "| `image.registry` | `\"\"` |";
/// The way from the folder of the chart to the root of the repository.
const UP: &str = "../../";

/// Returns values.yaml with this registry as the default, so that the chart finds the images of its release.
pub(super) fn values(values: &str, registry: &str) -> anyhow::Result<String> {
    if registry.is_empty() {
        return Ok(values.to_owned());
    }
    replaced_once(values, REGISTRY, &format!("\n  registry: {}\n", serde_json::Value::from(registry)))
        .context("values.yaml")
}

/// Returns the README with the registry as the default, and with links that work outside the repository. `folder` is the URL of the
/// chart's folder at the release's tag, and `root` that of the repository.
pub(super) fn readme(readme: &str, registry: &str, root: &str, folder: &str) -> anyhow::Result<String> {
    let text = linked(readme, root, folder);
    if registry.is_empty() {
        return Ok(text);
    }
    replaced_once(&text, REGISTRY_ROW, &format!("| `image.registry` | `\"{registry}\"` |"))
        .context("README.md")
}

fn replaced_once(text: &str, old: &str, new: &str) -> anyhow::Result<String> {
    anyhow::ensure!(text.matches(old).count() == 1, "expected the text {:?} once", old.trim());
    Ok(text.replacen(old, new, 1))
}

/// Makes relative links absolute. Links to headings of the page and to other sites stay.
fn linked(page: &str, root: &str, folder: &str) -> String {
    let mut parts = page.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str("](");
        let target = part.split(')').next().unwrap_or_default();
        if let Some(path) = part.strip_prefix(UP) {
            text.push_str(&format!("{root}/{path}"));
        } else if target.starts_with('#') || target.contains("://") {
            text.push_str(part);
        } else {
            text.push_str(&format!("{folder}/{part}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{readme, values};

    #[test]
    fn registry_changes_one_line_of_the_values() {
        let before = "# Images.\nimage:\n  # Registry: empty by default.\n  registry: \"\"\n  tag: \"\"\n";
        let after = values(before, "registry.example:5000/team").unwrap();
        assert_eq!(after, before.replace("registry: \"\"", "registry: \"registry.example:5000/team\""));
        assert_eq!(values(before, "").unwrap(), before);
        let error = values("image:\n  tag: \"\"\n", "a").unwrap_err();
        assert!(format!("{error:#}").contains("values.yaml: expected the text \"registry:"), "{error:#}");
    }

    #[test]
    fn relative_links_of_the_readme_become_absolute() {
        let page = "[a](../../docs/a.md#b), [`c`](presets/c.yaml), [d](#d), [e](https://e.example/x).\n\
                    | `image.registry` | `\"\"` | Registry. |\n";
        let read = |registry| readme(page, registry, "https://h/v1", "https://h/v1/chart").unwrap();
        let links = "[a](https://h/v1/docs/a.md#b), [`c`](https://h/v1/chart/presets/c.yaml), [d](#d), [e](https://e.example/x).\n";
        assert_eq!(read(""), format!("{links}| `image.registry` | `\"\"` | Registry. |\n"));
        assert_eq!(read("r.example"), format!("{links}| `image.registry` | `\"r.example\"` | Registry. |\n"));
        assert!(readme("", "r.example", "", "").is_err());
    }
}
