//! Client addresses that may connect, in canonical form. They come from `spec.loadBalancerSourceRanges` or from the older annotation.
//!
//! Only [`open_to_all`] depends on the address families of the load balancer.

use std::{collections::BTreeSet, net::IpAddr};

use controller_core::cidr;
use ipnet::IpNet;

use super::{Refusal, service::Family, service::Service};

/// Comma-separated list of CIDRs that may connect. `spec.loadBalancerSourceRanges` takes precedence. Defined by Kubernetes.
///
/// Type: comma list of CIDRs.  Default: all clients.  Unit: -.
pub(crate) const ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// Returns the ranges of a Service for both families. They are trimmed and sorted, their host bits are masked, and duplicates are removed.
/// Empty: all clients may connect.
pub(crate) fn source_ranges(service: &Service) -> Result<BTreeSet<IpNet>, Refusal> {
    if !service.source_ranges.is_empty() {
        let entries = service.source_ranges.iter().map(String::as_str);
        return parse("spec.loadBalancerSourceRanges", entries);
    }
    match service.annotations.get(ANNOTATION).map(|value| value.trim()) {
        None | Some("") => Ok(BTreeSet::new()),
        Some(list) => parse(&format!("annotation {ANNOTATION}"), list.split(',')),
    }
}

/// Whether the ranges allow all clients, for every family of the load balancer.
pub(crate) fn open_to_all(ranges: &BTreeSet<IpNet>, families: &[Family]) -> bool {
    let everybody = |family: &Family| {
        ranges.iter().any(|range| {
            range.prefix_len() == 0 && matches!(range.addr(), IpAddr::V4(_)) == (*family == Family::V4)
        })
    };
    ranges.is_empty() || (!families.is_empty() && families.iter().all(everybody))
}

/// Refuses source ranges if the number of ports times ranges exceeds the limit on members. The cloud receives all ranges with each
/// listener.
pub(super) fn check_number(ports: usize, ranges: usize, most: usize) -> Option<Refusal> {
    let all = ports.saturating_mul(ranges);
    (all > most).then(|| {
        let why = format!(
            "{ranges} source ranges for each of {ports} ports make {all} entries, above the limit of {most} (serviceController.maxMembersPerService): \
             use fewer ranges, or fewer ports"
        );
        Refusal::new("spec.loadBalancerSourceRanges", why)
    })
}

fn parse<'a>(field: &str, entries: impl Iterator<Item = &'a str>) -> Result<BTreeSet<IpNet>, Refusal> {
    entries
        .map(|entry| {
            let trimmed = entry.trim();
            cidr::parse(trimmed).map_err(|error| {
                let why = format!("invalid CIDR {trimmed:?} ({error}): write one such as 192.0.2.0/24");
                Refusal::new(field, why)
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(field: &[&str], annotation: Option<&str>) -> Service {
        Service {
            source_ranges: field.iter().map(|&entry| entry.to_owned()).collect(),
            annotations: annotation.map(|v| (ANNOTATION.to_owned(), v.to_owned())).into_iter().collect(),
            ..Service::default()
        }
    }

    // Behaviour: SF2
    #[test]
    fn ranges_become_canonical() {
        struct Row {
            name: &'static str,
            field: &'static [&'static str],
            annotation: Option<&'static str>,
            want: &'static [&'static str],
        }
        let rows = [
            Row { name: "neither", field: &[], annotation: None, want: &[] },
            Row { name: "blank annotation", field: &[], annotation: Some("  "), want: &[] },
            Row { name: "annotation", field: &[], annotation: Some("10.0.0.0/8"), want: &["10.0.0.0/8"] },
            Row {
                name: "the field wins",
                field: &["192.0.2.0/24"],
                annotation: Some("10.0.0.0/8"),
                want: &["192.0.2.0/24"],
            },
            Row {
                name: "blanks",
                field: &[],
                annotation: Some(" 10.0.0.0/8 , 192.0.2.0/24"),
                want: &["10.0.0.0/8", "192.0.2.0/24"],
            },
            Row { name: "host bits", field: &["10.1.2.3/8"], annotation: None, want: &["10.0.0.0/8"] },
            Row {
                name: "duplicates",
                field: &["10.1.0.0/8", "10.2.0.0/8"],
                annotation: None,
                want: &["10.0.0.0/8"],
            },
            Row {
                name: "the order does not matter",
                field: &["192.0.2.0/24", "10.0.0.0/8"],
                annotation: None,
                want: &["10.0.0.0/8", "192.0.2.0/24"],
            },
            Row {
                name: "both families",
                field: &["2001:db8::1/32", "10.0.0.0/8"],
                annotation: None,
                want: &["10.0.0.0/8", "2001:db8::/32"],
            },
            Row {
                name: "leading zeros are decimal",
                field: &["010.000.0.0/8"],
                annotation: None,
                want: &["10.0.0.0/8"],
            },
        ];
        for row in rows {
            let got = source_ranges(&service(row.field, row.annotation)).unwrap();
            let got: Vec<String> = got.iter().map(ToString::to_string).collect();
            assert_eq!(got, row.want, "{}", row.name);
        }
    }

    // Behaviour: SF2
    #[test]
    fn invalid_source_ranges_are_refused() {
        let rows: [(&str, &[&str], Option<&str>, &str); 5] = [
            ("no prefix", &["10.0.0.1"], None, "spec.loadBalancerSourceRanges: invalid CIDR \"10.0.0.1\""),
            ("trailing comma", &[], Some("10.0.0.0/8,"), "load-balancer-source-ranges: invalid CIDR \"\""),
            ("prefix too long", &["10.0.0.0/33"], None, "\"10.0.0.0/33\""),
            ("words", &[], Some("office"), "\"office\""),
            ("an empty entry", &[""], None, "\"\""),
        ];
        for (name, field, annotation, want) in rows {
            let refusal = source_ranges(&service(field, annotation)).unwrap_err().to_string();
            assert!(refusal.contains(want), "{name}: {refusal}");
        }
    }

    // Behaviour: SF2
    #[test]
    fn open_ranges_must_cover_every_family() {
        let rows: [(&[&str], &[Family], bool); 6] = [
            (&[], &[Family::V4, Family::V6], true),
            (&["0.0.0.0/0"], &[Family::V4], true),
            (&["0.0.0.0/0"], &[Family::V4, Family::V6], false),
            (&["0.0.0.0/0", "::/0"], &[Family::V4, Family::V6], true),
            (&["::/0"], &[Family::V6], true),
            (&["10.0.0.0/8"], &[Family::V4], false),
        ];
        for (field, families, want) in rows {
            let ranges = source_ranges(&service(field, None)).unwrap();
            assert_eq!(open_to_all(&ranges, families), want, "{field:?} {families:?}");
        }
    }
}
