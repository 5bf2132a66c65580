//! Rewrites the links of a page.

use std::ops::Range;

use pulldown_cmark::{Event, LinkType, Options, Parser, Tag};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Keep,
    /// Replace the target.
    To(String),
    /// Replace the link by its text.
    Unlink,
}

/// Returns the page with its links rewritten, except links in code and comments.
pub(super) fn with_links(page: &str, change: impl Fn(&str) -> Change) -> String {
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    for (event, whole) in Parser::new_ext(page, Options::ENABLE_TABLES).into_offset_iter() {
        let Event::Start(Tag::Link { link_type: LinkType::Inline, dest_url, .. }) = event else { continue };
        let Some(end) = page.get(whole.clone()).and_then(|link| link.rfind("](")) else { continue };
        let end = whole.start + end;
        match change(&dest_url) {
            Change::Keep => (),
            Change::To(target) => edits.push((end + 2..end + 2 + dest_url.len(), target)),
            Change::Unlink => {
                edits.push((whole.start..whole.start + 1, String::new()));
                edits.push((end..whole.end, String::new()));
            }
        }
    }
    let mut changed = page.to_owned();
    // Applies the edits from the end, so that the positions of the remaining edits stay valid.
    for (range, text) in edits.into_iter().rev() {
        changed.replace_range(range, &text);
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::{Change, with_links};

    #[test]
    fn rewritten_link_keeps_the_rest_of_the_page() {
        let page = "a [b](c \"d\") [e [f]](g), `[h](c)` <!-- [d](c) -->\n\n```md\n[e](c)\n```\n\n| [t](c) |\n| --- |\n";
        let changed = with_links(page, |target| match target {
            "c" => Change::To("xy".to_owned()),
            "g" => Change::Unlink,
            _ => Change::Keep,
        });
        let expected =
            page.replacen("(c ", "(xy ", 1).replace("[e [f]](g)", "e [f]").replace("[t](c)", "[t](xy)");
        assert_eq!(changed, expected);
        assert_eq!(with_links(page, |_| Change::Keep), page);
    }
}
