//! Reads and validates the `OTEL_*` variables. Pure functions, except for [`environment`].
//!
//! The SDK silently uses defaults for values that it cannot parse, so the values are validated here first. Source: OpenTelemetry,
//! "Environment Variable Specification" and "OTLP Exporter Configuration".

use http::Uri;

/// The only supported protocol, which is also the default. Source: OpenTelemetry, "OTLP Exporter Configuration".
const PROTOCOL: &str = "http/protobuf";
/// All samplers of the SDK.
const SAMPLERS: [&str; 4] = ["always_on", "always_off", "parentbased_always_on", "parentbased_always_off"];
/// The samplers that take a ratio in `OTEL_TRACES_SAMPLER_ARG`.
const SHARED_SAMPLERS: [&str; 2] = ["traceidratio", "parentbased_traceidratio"];
/// Variables whose values are whole numbers: durations in milliseconds, and limits.
const NUMBERS: [&str; 9] = [
    "OTEL_EXPORTER_OTLP_TIMEOUT",
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_BSP_MAX_QUEUE_SIZE",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
    "OTEL_BSP_EXPORT_TIMEOUT",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_SPAN_EVENT_COUNT_LIMIT",
    "OTEL_SPAN_LINK_COUNT_LIMIT",
];
/// Names of variables. The variable for traces takes precedence over the general variable.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const LISTS: [&str; 3] =
    ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_RESOURCE_ATTRIBUTES"];

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    Off,
    On {
        /// The endpoint as logs show it.
        endpoint: String,
        /// Whether the environment sets a service name.
        names_service: bool,
    },
}

/// Reads a variable of this process. An empty variable counts as unset.
#[expect(
    clippy::disallowed_methods,
    reason = "names and meanings are defined by OpenTelemetry, so \
              they cannot be flags"
)]
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

pub(crate) fn read(variable: &impl Fn(&str) -> Option<String>) -> Result<Setting, Vec<String>> {
    let first = |names: &[&'static str]| names.iter().find_map(|name| Some((*name, variable(name)?)));
    let Some((name, endpoint)) = first(&ENDPOINTS) else { return Ok(Setting::Off) };
    let mut faults = Vec::new();
    for (name, off, on) in [("OTEL_SDK_DISABLED", "true", "false"), ("OTEL_TRACES_EXPORTER", "none", "otlp")]
    {
        match variable(name) {
            Some(value) if value.eq_ignore_ascii_case(off) => return Ok(Setting::Off),
            Some(value) if !value.eq_ignore_ascii_case(on) => {
                faults.push(fault(name, &value, &format!("{on} or {off}")));
            }
            Some(_) | None => (),
        }
    }
    if !is_url(&endpoint) {
        faults.push(fault(name, &endpoint, "a URL such as http://otel-collector.monitoring.svc:4318"));
    }
    if let Some((name, value)) = first(&PROTOCOLS).filter(|(_, value)| value != PROTOCOL) {
        let fix = format!("{PROTOCOL}, and the collector's port for it, usually 4318");
        faults.push(fault(name, &value, &fix));
    }
    let numbers = NUMBERS.into_iter().filter_map(|name| Some((name, variable(name)?)));
    let wrong = numbers.filter(|(_, value)| value.parse::<u32>().is_err());
    faults.extend(wrong.map(|(name, value)| fault(name, &value, "a whole number")));
    faults.extend(LISTS.into_iter().filter_map(|name| {
        // The error does not quote the value, because the value may be a credential.
        let wrong = variable(name)?.split_terminator(',').any(|pair| !is_pair(pair));
        wrong.then(|| format!("{name}: use KEY=VALUE pairs with commas between them"))
    }));
    faults.extend(sampler(variable));
    if !faults.is_empty() {
        return Err(faults);
    }
    let attributes = variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    let mut keys = attributes.split(',').filter_map(|pair| pair.split_once('='));
    let names_service =
        variable("OTEL_SERVICE_NAME").is_some() || keys.any(|(key, _)| key.trim() == "service.name");
    Ok(Setting::On { endpoint, names_service })
}

fn sampler(variable: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let (name, argument) = ("OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG");
    let sampler = variable(name)?;
    if SHARED_SAMPLERS.contains(&sampler.as_str()) {
        let share = variable(argument).unwrap_or_default();
        let good = share.parse::<f64>().is_ok_and(|share| (0.0..=1.0).contains(&share));
        return (!good).then(|| fault(argument, &share, "a ratio of all traces, from 0 to 1, such as 0.05"));
    }
    let known = SAMPLERS.contains(&sampler.as_str());
    (!known)
        .then(|| fault(name, &sampler, &format!("{} or {}", SAMPLERS.join(", "), SHARED_SAMPLERS.join(", "))))
}

fn fault(name: &str, value: &str, fix: &str) -> String {
    format!("{name}={value}: use {fix}")
}

fn is_url(text: &str) -> bool {
    text.parse::<Uri>().is_ok_and(|url| {
        matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some_and(|it| !it.is_empty())
    })
}

fn is_pair(text: &str) -> bool {
    text.split_once('=').is_some_and(|(key, _)| !key.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");

    fn judged(set: &[(&str, &str)]) -> Result<Setting, Vec<String>> {
        read(&|name: &str| set.iter().find(|(one, _)| *one == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn nothing_is_traced_without_an_endpoint_or_if_disabled() {
        for (name, set) in [
            ("no variable is set", &[][..]),
            ("no endpoint", &[("OTEL_SERVICE_NAME", "a"), ("OTEL_TRACES_SAMPLER", "nonsense")]),
            ("disabled", &[ENDPOINT, ("OTEL_SDK_DISABLED", "TRUE")]),
            ("no exporter", &[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")]),
        ] {
            assert_eq!(judged(set), Ok(Setting::Off), "{name}");
        }
    }

    #[test]
    fn the_trace_endpoint_takes_precedence() {
        let on =
            |endpoint: &str, names_service| Ok(Setting::On { endpoint: endpoint.to_owned(), names_service });
        let special = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://traces:4318/v1/traces");
        assert_eq!(judged(&[ENDPOINT]), on("http://collector:4318", false));
        assert_eq!(judged(&[ENDPOINT, special]), on("https://traces:4318/v1/traces", false));
        for name in [("OTEL_SERVICE_NAME", "a"), ("OTEL_RESOURCE_ATTRIBUTES", "k=v, service.name=a")] {
            assert_eq!(judged(&[ENDPOINT, name]), on("http://collector:4318", true), "{name:?}");
        }
        let sampled = [
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.05"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x"),
            ("OTEL_BSP_SCHEDULE_DELAY", "100"),
        ];
        assert_eq!(judged(&[&[ENDPOINT][..], &sampled].concat()), on("http://collector:4318", false));
    }

    #[test]
    fn errors_name_the_variable_and_show_no_credentials() {
        for (name, value, fix) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", "a URL such as http://"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf, and the collector's port"),
            ("OTEL_SDK_DISABLED", "yes", "false or true"),
            ("OTEL_TRACES_EXPORTER", "jaeger", "otlp or none"),
            ("OTEL_TRACES_SAMPLER", "sometimes", "always_on, always_off"),
            ("OTEL_TRACES_SAMPLER", "traceidratio", "a ratio of all traces"),
            ("OTEL_BSP_SCHEDULE_DELAY", "5s", "a whole number"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "secret", "KEY=VALUE"),
        ] {
            let set = [(name, value), ENDPOINT];
            let faults = judged(&set).expect_err(name).join("; ");
            assert!(faults.contains("OTEL_") && faults.contains(fix), "{name}={value}: {faults}");
            assert!(!faults.contains("secret"), "{faults}");
        }
        let both = [ENDPOINT, ("OTEL_SDK_DISABLED", "yes"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "1s")];
        assert_eq!(judged(&both).expect_err("two").len(), 2, "all errors are reported");
    }
}
