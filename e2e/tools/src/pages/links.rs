//! Links of a page, and the anchors to which links can refer.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::lines::{Kind, lines};

/// A link such as `[words](target)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link<'a> {
    /// The line number of its target, from 1.
    pub line: usize,
    /// The target, without a title.
    pub target: &'a str,
    /// The position of the target in the page.
    at: Range<usize>,
    /// The position of the whole link, and the link's text.
    whole: Range<usize>,
    words: Range<usize>,
}

/// How to rewrite a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Keep the link unchanged.
    Keep,
    /// Replace the target.
    To(String),
    /// Replace the link by its text.
    Unlink,
}

/// Returns all links of a page in their order, except links in code and comments.
#[must_use]
pub fn links(page: &str) -> Vec<Link<'_>> {
    let masked = masked(page);
    masked.match_indices("](").filter_map(|(at, _)| link(page, &masked, at)).collect()
}

/// Returns the page with its links rewritten.
#[must_use]
pub fn with_links(page: &str, mut change: impl FnMut(&Link<'_>) -> Change) -> String {
    let mut changed = String::with_capacity(page.len());
    let mut done = 0;
    let part = |range: Range<usize>| page.get(range).unwrap_or_default();
    for link in links(page) {
        // In a link around an image, the inner link comes first.
        if link.whole.start < done {
            continue;
        }
        match change(&link) {
            Change::Keep => (),
            Change::To(target) => {
                changed.push_str(part(done..link.at.start));
                changed.push_str(&target);
                done = link.at.end;
            }
            Change::Unlink => {
                changed.push_str(part(done..link.whole.start));
                changed.push_str(part(link.words.clone()));
                done = link.whole.end;
            }
        }
    }
    changed.push_str(part(done..page.len()));
    changed
}

/// Returns the anchors of a page's headings, as the repository's web view and the book both generate them.
#[must_use]
pub fn anchors(page: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for line in lines(page).filter(|line| line.kind == Kind::Prose) {
        let words = line.text.trim_start_matches('#');
        let level = line.text.len().saturating_sub(words.len());
        if !(1..=6).contains(&level) || !words.starts_with(' ') {
            continue;
        }
        let slug = slug(words.trim());
        let times = seen.entry(slug.clone()).or_default();
        anchors.insert(if *times == 0 { slug } else { format!("{slug}-{times}") });
        *times = times.saturating_add(1);
    }
    anchors
}

fn slug(heading: &str) -> String {
    let words = with_links(heading, |_| Change::Unlink);
    words
        .chars()
        .flat_map(char::to_lowercase)
        .filter_map(|c| match c {
            c if c.is_alphanumeric() || ['_', '-'].contains(&c) => Some(c),
            c if c.is_whitespace() => Some('-'),
            _ => None,
        })
        .collect()
}

/// Returns the link whose `](` is at this position of the page.
fn link<'a>(page: &'a str, masked: &str, at: usize) -> Option<Link<'a>> {
    let begin = at.checked_add(2)?;
    let rest = masked.get(begin..)?;
    let mut depth = 0_usize;
    let mut close = None;
    for (offset, c) in rest.char_indices() {
        match c {
            '(' => depth = depth.saturating_add(1),
            ')' if depth == 0 => {
                close = Some(offset);
                break;
            }
            ')' => depth = depth.saturating_sub(1),
            _ => (),
        }
    }
    let inside = rest.get(..close?)?;
    let length = inside.find(char::is_whitespace).unwrap_or(inside.len());
    let at_target = begin..begin.checked_add(length)?;
    let mut depth = 0_usize;
    let open = masked.get(..at)?.char_indices().rev().find_map(|(offset, c)| match c {
        ']' => {
            depth = depth.saturating_add(1);
            None
        }
        '[' if depth == 0 => Some(offset),
        '[' => {
            depth = depth.saturating_sub(1);
            None
        }
        _ => None,
    })?;
    let line = page.get(..begin)?.matches('\n').count().saturating_add(1);
    Some(Link {
        line,
        target: page.get(at_target.clone())?,
        at: at_target,
        whole: open..begin.checked_add(close?)?.checked_add(1)?,
        words: open.checked_add(1)?..at,
    })
}

/// Returns the page with blanks instead of code and comments, so that all positions stay the same.
fn masked(page: &str) -> String {
    let mut masked = String::with_capacity(page.len());
    let mut paragraph = String::new();
    for line in lines(page) {
        if line.kind == Kind::Prose && !line.text.trim().is_empty() {
            paragraph.push_str(line.whole);
        } else {
            without_spans(&paragraph, &mut masked);
            paragraph.clear();
            masked.push_str(&blanks(line.whole));
        }
    }
    without_spans(&paragraph, &mut masked);
    without_comments(&masked)
}

/// Finds the end of a code span, which has the same number of backticks as its beginning.
fn without_spans(mut text: &str, into: &mut String) {
    while let Some((before, rest)) = text.split_once('`') {
        into.push_str(before);
        let after = rest.trim_start_matches('`');
        let run = "`".repeat(rest.len().saturating_sub(after.len()).saturating_add(1));
        let Some(end) = end_of_span(after, &run) else {
            into.push_str(&run);
            text = after;
            continue;
        };
        into.push_str(&blanks(&run));
        into.push_str(&blanks(after.get(..end).unwrap_or_default()));
        text = after.get(end..).unwrap_or_default();
    }
    into.push_str(text);
}

/// Returns the position after the closing run.
fn end_of_span(text: &str, run: &str) -> Option<usize> {
    let is_tick = |at: Option<usize>| at.and_then(|at| text.as_bytes().get(at)) == Some(&b'`');
    text.match_indices(run).map(|(at, _)| (at, at.saturating_add(run.len()))).find_map(|(at, end)| {
        let whole = !is_tick(at.checked_sub(1)) && !is_tick(Some(end));
        whole.then_some(end)
    })
}

fn without_comments(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(begin) = rest.find("<!--") {
        let (before, comment) = rest.split_at(begin);
        let length = comment.find("-->").map_or(comment.len(), |end| end.saturating_add(3));
        kept.push_str(before);
        kept.push_str(&blanks(comment.get(..length).unwrap_or_default()));
        rest = comment.get(length..).unwrap_or_default();
    }
    kept.push_str(rest);
    kept
}

/// Returns the same number of blanks, with line endings kept.
fn blanks(text: &str) -> String {
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

#[cfg(test)]
mod tests {
    use super::{Change, anchors, links, with_links};

    #[test]
    fn links_in_code_and_comments_are_ignored() {
        let page = "[a](x.md) `[b](y)` é [`c`](z.md#s \"t\") <!-- [d](d) -->\n\n```md\n[e](e)\n```\n[two\nlines](f(1).md)\n`` ` `` [g](g)\n";
        let found: Vec<_> = links(page).iter().map(|link| (link.line, link.target)).collect();
        assert_eq!(found, [(1, "x.md"), (1, "z.md#s"), (7, "f(1).md"), (8, "g")]);
    }

    #[test]
    fn rewritten_link_keeps_the_rest_of_the_page() {
        let page = "a [b](c \"d\") [e [f]](g), `[h](i)`\n";
        let changed = with_links(page, |link| match link.target {
            "c" => Change::To("x".to_owned()),
            "g" => Change::Unlink,
            _ => Change::Keep,
        });
        assert_eq!(changed, "a [b](x \"d\") e [f], `[h](i)`\n");
        assert_eq!(with_links(page, |_| Change::Keep), page);
    }

    #[test]
    fn anchors_match_those_of_rendered_pages() {
        let page =
            "# What's `--this` for?\n\n## The [contract](c.md)\n## A_b\n## A_b\n#no\n```\n# code\n```\n";
        let expected = ["a_b", "a_b-1", "the-contract", "whats---this-for"];
        assert!(anchors(page).iter().eq(expected.iter()), "{:?}", anchors(page));
    }
}
