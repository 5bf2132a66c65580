//! Groups the functions in samples. Pure functions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::listings::of_count;

/// Samples of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in super::super) struct Profile {
    pub(in super::super) samples: u64,
    /// Groups with their shares of all samples, the largest first.
    pub(in super::super) groups: Vec<(String, f64)>,
}

/// Groups, each with parts of the function names that belong to it. A sample belongs to the group of its innermost function that matches:
/// shared helpers, such as collections and copies, count for their callers.
const GROUPS: [(&str, &[&str]); 9] = [
    // Kernel functions are matched by the beginning of their names, after the address.
    (
        "kernel: network",
        &[" tcp_", " __tcp_", " inet_", " sock_", " sk_", " skb_", " __skb_", " net_rx_", " ip_", " __ip_"],
    ),
    (
        "kernel: memory",
        &["page_fault", " do_madvise", " do_mmap", " __do_munmap", " unmap_", " clear_page", " do_brk"],
    ),
    ("allocation", &["malloc", "cfree", "int_free", "realloc", "calloc", "malloc_consolidate"]),
    (
        "encryption",
        &["rustls", "aws_lc", "aws-lc", "aes_", "aesni", "gcm_", "ghash", "sha256", "sha512", "x25519"],
    ),
    ("JSON", &["serde_json", "serde_core", "serde::"]),
    ("protobuf", &["prost::", "prost_types", "as prost::"]),
    ("HTTP and gRPC", &["h2::", "hyper", "tonic::", "tower", "reqwest", "http::", "http_body"]),
    (
        "our own",
        &[
            "node_controller",
            "service_controller",
            "route_controller",
            "controller_core",
            "adapter_client",
            "cloud_",
            "adapter_sim",
            "pages::",
        ],
    ),
    (
        "runtime and the rest of the libraries",
        &["tokio", "kube_", "futures", "tracing", "prometheus", "k8s_openapi"],
    ),
];
const KERNEL: &str = "kernel: the rest";
const OTHER: &str = "other";

impl Profile {
    /// Parses the output of `perf script --fields=ip,sym,dso`: one function per line, innermost first, and an empty line after each sample.
    pub(super) fn of(script: &str) -> Self {
        let mut counts = BTreeMap::<&str, u64>::new();
        for sample in script.split("\n\n").filter(|sample| !sample.trim().is_empty()) {
            *counts.entry(group(sample)).or_default() += 1;
        }
        let samples = counts.values().sum();
        let share = |(name, n): (&str, u64)| (name.to_owned(), of_count(n) / of_count(samples).max(1.0));
        let mut groups: Vec<_> = counts.into_iter().map(share).collect();
        groups.sort_by(|a, b| b.1.total_cmp(&a.1));
        Self { samples, groups }
    }
}

fn group(sample: &str) -> &'static str {
    let of_line = |line: &str| {
        let known = |(_, parts): &&(&str, &[&str])| parts.iter().any(|part| line.contains(part));
        GROUPS.iter().find(known).map(|(name, _)| *name)
    };
    let other = if sample.contains("[kernel") { KERNEL } else { OTHER };
    sample.lines().find_map(of_line).unwrap_or(other)
}

#[cfg(test)]
mod tests {
    use super::Profile;

    #[test]
    fn sample_counts_for_its_innermost_known_function() {
        let script = "\
                      55d0 alloc::vec::Vec<T>::push (/a/node-controller)\n\
                      55d1 serde_json::de::Deserializer<R>::next_char (/a/node-controller)\n\
                      55d2 node_controller::mirror::read (/a/node-controller)\n\
                      \n\
                      ffff finish_task_switch ([kernel.kallsyms])\n\
                      \n\
                      55d1 serde_json::de::from_slice (/a/node-controller)\n\
                      \n\
                      7f00 [unknown] (/a/libc.so.6)\n\
                      \n";
        let profile = Profile::of(script);
        assert_eq!(profile.samples, 4);
        let groups: Vec<_> = profile.groups.iter().map(|(name, share)| (name.as_str(), *share)).collect();
        assert_eq!(groups, [("JSON", 0.5), ("kernel: the rest", 0.25), ("other", 0.25)]);
        assert_eq!(Profile::of("\n"), Profile::default());
    }
}
