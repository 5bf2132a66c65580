//! Decides which planned writes to the API server only add something. The writes are recognised by the texts of this repository's
//! controllers (`*/src/reconcile/rehearse.rs`); any other text counts as a change.

/// Prefix of the write that sets the fields of an uninitialised node.
const INITIALISE: &str = "initialise ";
/// Prefix of the write that replaces the addresses of a node.
const ADDRESSES: &str = "addresses ";

/// Returns the lines about one object, each with a flag that says whether the write only adds something. An indented line belongs to the
/// line before it.
pub(super) fn of(lines: &[String]) -> Vec<(&str, bool)> {
    let is_new = lines.iter().any(|line| line.starts_with(INITIALISE));
    let mut all: Vec<(&str, bool)> = Vec::new();
    for line in lines {
        let adds = match all.last() {
            Some((_, adds)) if line.starts_with(' ') => *adds,
            _ => adds(line, is_new),
        };
        all.push((line, adds));
    }
    all
}

fn adds(line: &str, is_new: bool) -> bool {
    // These writes only add something. The status of a Service that waits for an address is still empty.
    let always = [
        INITIALISE,
        "add the finalizer ",
        "write the status, once ",
        "write the status, empty so far: ",
        "set the condition NetworkUnavailable to False",
    ];
    always.iter().any(|word| line.starts_with(word)) || (is_new && line.starts_with(ADDRESSES))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(lines: &[&str]) -> Vec<String> {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        of(&lines).into_iter().filter(|(_, adds)| !adds).map(|(line, _)| line.to_owned()).collect()
    }

    #[test]
    fn additions_are_not_changes() {
        let label = "  label    topology.kubernetes.io/zone=a";
        let new =
            ["addresses  InternalIP=192.0.2.1", "initialise provider ID sim://a, taints left []", label];
        assert_eq!(changes(&new), [""; 0]);
        assert_eq!(
            changes(&["add the finalizer x", "write the status, once the load balancer has an address"]),
            [""; 0]
        );
        assert_eq!(changes(&["write the status, empty so far: 192.0.2.1"]), [""; 0]);
        assert_eq!(changes(&["set the condition NetworkUnavailable to False (RouteCreated)"]), [""; 0]);
    }

    #[test]
    fn replacements_removals_and_unknown_texts_are_changes() {
        for line in [
            "addresses  InternalIP=192.0.2.1",
            "write the status: 192.0.2.1",
            "remove the finalizer x, and empty the status",
            "set the condition NetworkUnavailable to True (NoRouteCreated)",
            "delete the node: its instance is gone",
            "taint the node",
        ] {
            assert_eq!(changes(&[line]), [line]);
        }
        assert_eq!(changes(&["relabel", "  label    a=b"]).len(), 2);
    }
}
