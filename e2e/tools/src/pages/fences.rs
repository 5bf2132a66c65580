//! The fenced blocks of code of a page.

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};

/// A block of code between fences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence<'a> {
    /// The line number of the opening fence, from 1.
    pub line: usize,
    /// The language, such as `rust`.
    pub language: String,
    /// The line above the opening fence.
    pub(super) above: &'a str,
    /// The lines of the block, without the fence's indentation.
    pub body: Vec<&'a str>,
}

/// All fenced blocks of a page.
#[must_use]
pub fn fences(page: &str) -> Vec<Fence<'_>> {
    let mut fences = Vec::new();
    let mut open: Option<Fence<'_>> = None;
    for (event, range) in Parser::new(page).into_offset_iter() {
        if let Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) = event {
            let before = page.get(..range.start).unwrap_or_default();
            let above = before.rsplit('\n').nth(1).unwrap_or_default();
            let line = before.matches('\n').count().saturating_add(1);
            let language = info.split([',', ' ']).next().unwrap_or_default().to_owned();
            open = Some(Fence { line, language, above, body: Vec::new() });
        } else if event == Event::End(TagEnd::CodeBlock) {
            fences.extend(open.take());
        } else if let (Event::Text(_), Some(fence)) = (&event, &mut open) {
            fence.body.extend(page.get(range).unwrap_or_default().lines());
        }
    }
    fences
}

#[cfg(test)]
mod tests {
    use super::fences;

    #[test]
    fn fence_ends_with_a_matching_fence() {
        let page = "a\n````md\n```sh\nb\n```\n````\n- x\n\n  ```\n  c\n\n    d\n  ```\n```d```\n";
        let found: Vec<_> = fences(page).into_iter().map(|it| (it.line, it.language, it.body)).collect();
        let expected =
            [(2, "md".to_owned(), vec!["```sh", "b", "```"]), (9, String::new(), vec!["c", "", "  d"])];
        assert_eq!(found, expected);
    }
}
