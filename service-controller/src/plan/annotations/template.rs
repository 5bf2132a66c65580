//! How the cluster calls its load balancers: `{cluster}-{namespace}-{service}`, with each Service's own words put in. Pure.
//!
//! Names are for people: whose a load balancer is never depends on one.

use super::{
    super::service::ServiceId,
    values::{NAME_MAX, name},
};

/// Digits of a UID. Source: cloud-provider, `DefaultLoadBalancerName`: with the `a` in front of it a name has 32 letters.
const UID_DIGITS: usize = 31;
/// The same at the end of a name that was cut.
const CUT_DIGITS: usize = 12;

const CLUSTER: &str = "cluster";
const NAMESPACE: &str = "namespace";
const SERVICE: &str = "service";
const UID: &str = "uid";

/// A template, the cluster's name put in.
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
    /// Reads a template for the cluster of this name.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
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
        name(&template.whole(&any)).map_err(|why| format!("gives names that cannot be: {why}"))?;
        Ok(template)
    }

    /// The name of the Service's load balancer.
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

    /// Whether two Services get two names.
    fn tells_apart(&self) -> Result<(), &'static str> {
        let has = |part| self.0.contains(&part);
        if has(Part::Uid) {
            return Ok(());
        }
        if !has(Part::Namespace) || !has(Part::Service) {
            return Err("gives two Services one name: put in {uid}, or {namespace} and {service}");
        }
        let touch = |pair: &[Part]| pair.iter().all(|part| !matches!(part, Part::Text(_)));
        if self.0.windows(2).any(touch) {
            return Err("gives two Services one name: put a - or a _ between {namespace} and {service}");
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

    #[test]
    fn a_template_gives_the_names_that_go_controllers_give() {
        assert_eq!(named("{cluster}-{namespace}-{service}"), "prod-shop-web");
        assert_eq!(named("kube_service_{cluster}_{namespace}_{service}"), "kube_service_prod_shop_web");
        let default = named("a{uid}");
        assert_eq!((default.as_str(), default.len()), ("a7c1ff02e0c8b4c6e9c39b1b1a0d0c00", 32));
    }

    #[test]
    fn a_template_that_cannot_work_is_told_with_what_would() {
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
        let told = rows.map(|row| format!("{row:22} {}", Template::read(row, "prod").unwrap_err()));
        insta::assert_snapshot!(told.join("\n"), @r#"
        lb                     gives two Services one name: put in {uid}, or {namespace} and {service}
        {cluster}              gives two Services one name: put in {uid}, or {namespace} and {service}
        {cluster}-{service}    gives two Services one name: put in {uid}, or {namespace} and {service}
        {namespace}{service}   gives two Services one name: put a - or a _ between {namespace} and {service}
        {namespace}-{name}     {name} is not known: write {cluster}, {namespace}, {service} or {uid}
        {namespace}-{service   has a { without its }
        {namespace}-{service}} gives names that cannot be: "n-s}" is not a name of 1 to 255 letters, digits, -, _ and ., the first and the last a letter or a digit: write one such as shop-web
        {namespace}/{service}  gives names that cannot be: "n/s" is not a name of 1 to 255 letters, digits, -, _ and ., the first and the last a letter or a digit: write one such as shop-web
        -{namespace}-{service} gives names that cannot be: "-n-s" is not a name of 1 to 255 letters, digits, -, _ and ., the first and the last a letter or a digit: write one such as shop-web
        {uid} {cluster}        gives names that cannot be: "0 prod" is not a name of 1 to 255 letters, digits, -, _ and ., the first and the last a letter or a digit: write one such as shop-web
                               gives two Services one name: put in {uid}, or {namespace} and {service}
        "#);
        let odd = Template::read("{cluster}-{uid}", "prod/1").unwrap_err();
        assert!(odd.contains("prod/1-0"), "{odd}");
    }

    #[test]
    fn a_name_that_is_too_long_is_cut_and_still_another_one_for_each() {
        let template = Template::read("{cluster}-{namespace}-{service}", &"c".repeat(200)).unwrap();
        let long = template.name(&id(&"n".repeat(63), "web"));
        assert_eq!(long.len(), NAME_MAX);
        assert!(long.ends_with("n-7c1ff02e0c8b") && name(&long).is_ok(), "{long}");
        let other = ServiceId { uid: "8".repeat(36), ..id(&"n".repeat(63), "web") };
        assert_ne!(template.name(&other), long);
    }
}
