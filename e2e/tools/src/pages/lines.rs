//! The lines of a page, and whether each is code.

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text outside of fences.
    Prose,
    /// The opening fence of a block of code.
    Opens,
    /// Code between fences.
    Code,
    /// The closing fence of a block of code.
    Closes,
}

/// A line of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The line number, from 1.
    pub number: usize,
    /// The text without the line ending.
    pub text: &'a str,
    /// The text with the line ending.
    pub whole: &'a str,
    /// The kind of the line.
    pub kind: Kind,
}

/// All lines of a page.
pub fn lines(page: &str) -> impl Iterator<Item = Line<'_>> {
    let mut open: Option<&str> = None;
    (1..).zip(page.split_inclusive('\n')).map(move |(number, whole)| {
        let text = whole.trim_end_matches(['\n', '\r']);
        let kind = match (open, fence(text)) {
            (None, None) => Kind::Prose,
            (None, Some(run)) => {
                open = Some(run);
                Kind::Opens
            }
            (Some(begun), Some(run)) if run.starts_with(begun) && run == text.trim() => {
                open = None;
                Kind::Closes
            }
            (Some(_), _) => Kind::Code,
        };
        Line { number, text, whole, kind }
    })
}

/// Returns the run of backticks or tildes that makes a line a fence.
fn fence(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let mark = line.chars().next().filter(|first| ['`', '~'].contains(first))?;
    let info = line.trim_start_matches(mark);
    let run = line.strip_suffix(info)?;
    (run.len() >= 3 && !info.contains('`')).then_some(run)
}

#[cfg(test)]
mod tests {
    use super::{Kind, lines};

    #[test]
    fn fence_ends_with_a_matching_fence() {
        let page = "a\n````md\n```sh\nb\n```\n````\n  ```\nc\n  ```\n```d```\n";
        let kinds: Vec<_> = lines(page).map(|line| line.kind).collect();
        let code = [Kind::Opens, Kind::Code, Kind::Code, Kind::Code, Kind::Closes];
        let more = [Kind::Opens, Kind::Code, Kind::Closes, Kind::Prose];
        assert_eq!(kinds, [&[Kind::Prose][..], &code, &more].concat());
    }
}
