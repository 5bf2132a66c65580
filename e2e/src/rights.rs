//! The rights of an identity, as reported by the API server.

use std::collections::BTreeSet;

use anyhow::Context;

use crate::control_plane::ControlPlane;

/// All rights of a user in a namespace, as lines such as `patch nodes/status` or `get /healthz`.
pub async fn rights(
    control_plane: &ControlPlane,
    user: &str,
    namespace: &str,
) -> anyhow::Result<BTreeSet<String>> {
    let user = format!("--as={user}");
    let args = ["auth", "can-i", "--list", "--no-headers", &user, "--namespace", namespace];
    rights_listed(&control_plane.kubectl(&args).await?)
}

/// Parses the output of `kubectl auth can-i --list --no-headers`.
pub fn rights_listed(table: &str) -> anyhow::Result<BTreeSet<String>> {
    let mut rights = BTreeSet::new();
    for line in table.lines() {
        rights.extend(parse_line(line).with_context(|| format!("invalid line of the table: {line}"))?);
    }
    Ok(rights)
}

/// The columns are a resource and three lists in brackets: URLs, names of objects, verbs.
fn parse_line(line: &str) -> Option<Vec<String>> {
    let mut columns = line.split('[');
    let resource = columns.next()?.trim();
    let mut list = || Some(columns.next()?.trim().strip_suffix(']')?.split_whitespace());
    let (urls, names, verbs) = (list()?, list()?, list()?);
    let names: Vec<_> = names.collect();
    let of = if names.is_empty() { String::new() } else { format!(" named {}", names.join(" ")) };
    let resource = (!resource.is_empty()).then_some(resource);
    let objects: Vec<_> = resource.into_iter().chain(urls).collect();
    Some(
        verbs
            .flat_map(|verb| objects.iter().map(move |it| (verb, *it)))
            .map(|(verb, it)| format!("{verb} {it}{of}"))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::rights_listed;

    #[test]
    fn each_verb_on_each_object_is_a_right() {
        let table = "\
nodes                  []              []          [get list]
nodes/status           []              []          [patch]
leases.coordination    []              [a]         [update]
                       [/api/* /api]   []          [get]
";
        let rights: Vec<_> = rights_listed(table).unwrap().into_iter().collect();
        let wanted = [
            "get /api",
            "get /api/*",
            "get nodes",
            "list nodes",
            "patch nodes/status",
            "update leases.coordination named a",
        ];
        assert_eq!(rights, wanted);
    }

    #[test]
    fn unknown_table_is_refused() {
        assert!(rights_listed("error: nothing").is_err());
    }
}
