//! Template for the names of the cluster's load balancers, such as `{cluster}-{namespace}-{service}`, filled in for each Service.
//!
//! Names are for display only. They do not decide ownership.

use super::{
    super::service::ServiceId,
    values::{NAME_MAX, name},
};

/// Number of digits of a UID in a name. With the leading `a`, a name has 32 characters. Source: cloud-provider, `DefaultLoadBalancerName`.
const UID_DIGITS: usize = 31;
/// Number of digits of the UID at the end of a truncated name.
const CUT_DIGITS: usize = 12;

const CLUSTER: &str = "cluster";
const NAMESPACE: &str = "namespace";
const SERVICE: &str = "service";
const UID: &str = "uid";

/// A template in which the cluster's name is already filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Namespace,
    Service,
    Uid,
}

impl Template {
    pub(crate) fn read(text: &str, cluster: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, found)) = rest.split_once('{') {
            let (word, after) = found.split_once('}').ok_or("has a { without its }")?;
            parts.push(Part::Text(before.to_owned()));
            parts.push(match word {
                CLUSTER => Part::Text(cluster.to_owned()),
                NAMESPACE => Part::Namespace,
                SERVICE => Part::Service,
                UID => Part::Uid,
                _ => {
                    let known = "write {cluster}, {namespace}, {service} or {uid}";
                    return Err(format!("{{{word}}} is not known: {known}"));
                }
            });
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        parts.retain(|part| *part != Part::Text(String::new()));
        let template = Self(parts);
        template.tells_apart()?;
        let any = ServiceId { namespace: "n".to_owned(), name: "s".to_owned(), uid: "0".to_owned() };
        name(&template.whole(&any)).map_err(|why| format!("gives invalid names: {why}"))?;
        Ok(template)
    }

    pub(crate) fn name(&self, id: &ServiceId) -> String {
        let whole = self.whole(id);
        if whole.len() <= NAME_MAX {
            return whole;
        }
        let start: String = whole.chars().take(NAME_MAX.saturating_sub(CUT_DIGITS + 1)).collect();
        format!("{start}-{}", digits(id, CUT_DIGITS))
    }

    fn whole(&self, id: &ServiceId) -> String {
        let word = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Namespace => id.namespace.clone(),
            Part::Service => id.name.clone(),
            Part::Uid => digits(id, UID_DIGITS),
        };
        self.0.iter().map(word).collect()
    }

    /// Checks that two Services get different names.
    fn tells_apart(&self) -> Result<(), &'static str> {
        let has = |part| self.0.contains(&part);
        if has(Part::Uid) {
            return Ok(());
        }
        if !has(Part::Namespace) || !has(Part::Service) {
            return Err("gives two Services the same name: add {uid}, or {namespace} and {service}");
        }
        let touch = |pair: &[Part]| pair.iter().all(|part| !matches!(part, Part::Text(_)));
        if self.0.windows(2).any(touch) {
            return Err("gives two Services the same name: put a - or a _ between {namespace} and {service}");
        }
        Ok(())
    }
}

fn digits(id: &ServiceId, n: usize) -> String {
    id.uid.chars().filter(|one| *one != '-').take(n).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(namespace: &str, name: &str) -> ServiceId {
        let uid = "7c1ff02e-0c8b-4c6e-9c39-b1b1a0d0c001".to_owned();
        ServiceId { namespace: namespace.to_owned(), name: name.to_owned(), uid }
    }

    fn named(template: &str) -> String {
        Template::read(template, "prod").unwrap().name(&id("shop", "web"))
    }

    // Behaviour: SF9
    #[test]
    fn template_can_produce_names_of_go_controllers() {
        assert_eq!(named("{cluster}-{namespace}-{service}"), "prod-shop-web");
        assert_eq!(named("kube_service_{cluster}_{namespace}_{service}"), "kube_service_prod_shop_web");
        let default = named("a{uid}");
        assert_eq!((default.as_str(), default.len()), ("a7c1ff02e0c8b4c6e9c39b1b1a0d0c00", 32));
    }

    // Behaviour: SF9
    #[test]
    fn invalid_name_templates_are_refused_with_fix() {
        let rows = [
            "lb",
            "{cluster}",
            "{cluster}-{service}",
            "{namespace}{service}",
            "{namespace}-{name}",
            "{namespace}-{service",
            "{namespace}-{service}}",
            "{namespace}/{service}",
            "-{namespace}-{service}",
            "{uid} {cluster}",
            "",
        ];
        let reported = rows.map(|row| format!("{row:22} {}", Template::read(row, "prod").unwrap_err()));
        insta::assert_snapshot!(reported.join("\n"), @r#"
        lb                     gives two Services the same name: add {uid}, or {namespace} and {service}
        {cluster}              gives two Services the same name: add {uid}, or {namespace} and {service}
        {cluster}-{service}    gives two Services the same name: add {uid}, or {namespace} and {service}
        {namespace}{service}   gives two Services the same name: put a - or a _ between {namespace} and {service}
        {namespace}-{name}     {name} is not known: write {cluster}, {namespace}, {service} or {uid}
        {namespace}-{service   has a { without its }
        {namespace}-{service}} gives invalid names: "n-s}" is not a name of 1 to 255 letters, digits, -, _ and ., the first and the last a letter or a digit: write one such as shop-web
        {namespace}/{service}  gives invalid names: "n/s" is not a name of 1 to 255 letters, digits, -, _ and ., the first and the last a letter or a digit: write one such as shop-web
        -{namespace}-{service} gives invalid names: "-n-s" is not a name of 1 to 255 letters, digits, -, _ and ., the first and the last a letter or a digit: write one such as shop-web
        {uid} {cluster}        gives invalid names: "0 prod" is not a name of 1 to 255 letters, digits, -, _ and ., the first and the last a letter or a digit: write one such as shop-web
                               gives two Services the same name: add {uid}, or {namespace} and {service}
        "#);
        let odd = Template::read("{cluster}-{uid}", "prod/1").unwrap_err();
        assert!(odd.contains("prod/1-0"), "{odd}");
    }

    #[test]
    fn long_template_names_are_truncated_and_unique() {
        let template = Template::read("{cluster}-{namespace}-{service}", &"c".repeat(200)).unwrap();
        let long = template.name(&id(&"n".repeat(63), "web"));
        assert_eq!(long.len(), NAME_MAX);
        assert!(long.ends_with("n-7c1ff02e0c8b") && name(&long).is_ok(), "{long}");
        let other = ServiceId { uid: "8".repeat(36), ..id(&"n".repeat(63), "web") };
        assert_ne!(template.name(&other), long);
    }
}
