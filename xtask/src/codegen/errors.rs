//! Generates the reference page of error reasons from the contract's enum. Pure functions.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};

use super::reference::last_cell;

const HEAD: &str = "# Error reasons

<!-- Written by `cargo xtask codegen` from the .proto files: change those. -->

Every error of an adapter has one of these reasons (`google.rpc.ErrorInfo`) and, if the call is retried, the delay
(`google.rpc.RetryInfo`). The rules for callers are at [Reason](contract.md#reason), and the fixes in
[Troubleshoot](../troubleshoot.md#reasons-of-the-adapter).

| reason | gRPC code, and whether the call is retried | |
| --- | --- | --- |
";

const PREFIX: &str = "REASON_";
/// The value that adapters never send.
const NONE: &str = "UNSPECIFIED";

/// The first sentence of each comment has the gRPC code.
pub(crate) fn page(values: &[(String, String)]) -> Result<String> {
    let mut page = HEAD.to_owned();
    for (name, comment) in values {
        let word =
            name.strip_prefix(PREFIX).with_context(|| format!("{name} does not begin with {PREFIX}"))?;
        if word == NONE {
            writeln!(page, "| `{word}` | | {comment} |")?;
            continue;
        }
        let (code, meaning) = comment.split_once(". ").unwrap_or((comment.trim_end_matches('.'), ""));
        let (code, rest) = code.find([',', ' ']).map_or((code, ""), |at| code.split_at(at));
        let is_code = code.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        ensure!(is_code && !code.is_empty(), "{name}: its comment does not begin with a code");
        writeln!(page, "| `{word}` | `{code}`{rest} | {}", last_cell(meaning))?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::page;

    fn value(name: &str, comment: &str) -> (String, String) {
        (name.to_owned(), comment.to_owned())
    }

    #[test]
    fn enum_value_becomes_a_row_with_its_code() {
        let values = [
            value("REASON_UNSPECIFIED", "Newer. Decide on the code."),
            value("REASON_A_B", "ABORTED, retried. Another works. On it."),
            value("REASON_C", "INTERNAL. A defect."),
            value("REASON_D", "FAILED_PRECONDITION, retried at once."),
        ];
        let page = page(&values).expect("good");
        let rows = "| `UNSPECIFIED` | | Newer. Decide on the code. |\n| `A_B` | `ABORTED`, retried | Another works. On it. |\n\
                    | `C` | `INTERNAL` | A defect. |\n| `D` | `FAILED_PRECONDITION`, retried at once | |\n";
        assert!(page.ends_with(rows), "{page}");
    }

    #[test]
    fn comment_without_a_code_is_an_error() {
        let error = page(&[value("REASON_A", "Another defect.")]).expect_err("no code");
        assert!(error.to_string().starts_with("REASON_A: "), "{error}");
    }
}
