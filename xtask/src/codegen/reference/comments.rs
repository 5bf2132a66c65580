//! The comments of a file, by the element that they precede.

use std::collections::BTreeMap;

use prost_types::FileDescriptorProto;

pub(super) struct Comments(BTreeMap<Vec<i32>, String>);

impl Comments {
    pub(super) fn of(file: &FileDescriptorProto) -> Self {
        let locations = file.source_code_info.iter().flat_map(|info| &info.location);
        let written = locations.filter_map(|one| {
            let comment = plain(one.leading_comments.as_ref()?);
            Some((one.path.clone(), comment))
        });
        Self(written.collect())
    }

    pub(super) fn at(&self, path: &[i32]) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }
}

/// Removes the blank after each `//`.
fn plain(comment: &str) -> String {
    let lines = comment.lines().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end());
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}
