//! Expands `$(NAME)` in commands, arguments and environment, as Kubernetes does.

use std::collections::BTreeMap;

/// Replaces `$(NAME)` by the variable's value if the variable exists. `$$` becomes a dollar sign; all other text is unchanged.
pub(crate) fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        rest = after;
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
            match variables.get(name) {
                Some(value) => expanded.push_str(value),
                None => expanded.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            expanded.push('$');
        }
    }
    expanded.push_str(rest);
    expanded
}

#[cfg(test)]
mod tests {
    use super::{BTreeMap, expand};

    #[test]
    fn references_are_expanded_as_kubernetes_does() {
        let variables =
            BTreeMap::from([("A".to_owned(), "1".to_owned()), ("B".to_owned(), "$(A)".to_owned())]);
        let cases = [
            ("a reference", "--a=$(A)!", "--a=1!"),
            ("a value is not expanded again", "$(B)", "$(A)"),
            ("an unknown name stays", "$(C)", "$(C)"),
            ("an escape", "$$(A)", "$(A)"),
            ("a shell's notation stays", "$A ${A}", "$A ${A}"),
            ("an open end stays", "$(A", "$(A"),
            ("a dollar at the end stays", "5$", "5$"),
        ];
        for (name, text, wanted) in cases {
            assert_eq!(expand(text, &variables), wanted, "{name}");
        }
    }
}
