//! The adapter's status page: if a Service waits for the budget, the page shows the text of its Event. The page is readable on desktops and
//! phones.

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use e2e::{ADAPTER, Bed, Browser, Screenshot, WITHIN, binaries, eventually, service};
use serde_json::json;
use telemetry::report::{AdapterStatus, Task};

/// The cause at the start of each explanation. The Event contains only this cause.
const WAITS: &str = "waits for the call budget of bucket loadbalancer";
/// Names of the Services. They are more than this budget can serve during the scenario.
const SERVICES: [&str; 8] = [
    "web",
    "api",
    "shop",
    "mail",
    "search",
    "metrics",
    "login",
    "a-name-that-takes-more-room-than-others-do",
];

// Behaviour: S24
#[tokio::test(flavor = "multi_thread")]
async fn the_status_page_shows_services_that_wait_for_the_budget() {
    let slow = json!({ "reserve": 0, "buckets": { "loadbalancer": { "rate": 0.5, "burst": 1 } } });
    let mut bed = Bed::install_with(&json!({ "adapter": { "limits": slow } })).await.unwrap();
    bed.start_pods().await.unwrap();
    bed.join("a", None).await.unwrap();
    for name in SERVICES {
        service(name).port(80).create(&bed.client()).await.unwrap();
    }
    for name in ["web", "api"] {
        the_page_says_so(&bed, name).await;
    }
    the_event_says_so(&bed, "web").await;
    what_was_done_is_listed(&bed).await;
    let (url, dir) = (url(&bed), bed.cluster.control_plane.dir().to_path_buf());
    tokio::task::spawn_blocking(move || fit_for_eyes(&url, &dir)).await.unwrap();
}

async fn status(bed: &Bed) -> anyhow::Result<AdapterStatus> {
    let page = bed.cluster.pods.look_at(ADAPTER)?.page("/status.json").await?;
    serde_json::from_str(&page).with_context(|| page)
}

fn url(bed: &Bed) -> String {
    bed.cluster.pods.look_at(ADAPTER).unwrap().url("/").unwrap()
}

fn task<'a>(status: &'a AdapterStatus, name: &str) -> anyhow::Result<&'a Task> {
    let found = status.tasks.iter().find(|task| task.name == format!("default/{name}"));
    found.with_context(|| format!("{:?}", status.tasks))
}

/// Both the JSON and the HTML page show the Service, the queue of its call, and the budget that it waits for.
async fn the_page_says_so(bed: &Bed, name: &str) {
    let what = format!("{name} waits for the budget");
    let shown = eventually(&what, WITHIN, || async {
        let status = status(bed).await?;
        let waits = task(&status, name)?.waits_for.clone();
        let numbers = waits.strip_prefix(WAITS).and_then(|rest| rest.strip_prefix(": "));
        let numbers = numbers.with_context(|| waits.clone())?;
        ensure!(numbers.contains(" ahead at 0.5 a second, next call in about "), "{waits}");
        let queue = status.queues.iter().find(|queue| queue.bucket == "loadbalancer");
        let queue = queue.with_context(|| format!("{:?}", status.queues))?;
        ensure!(queue.controller == "service-controller" && queue.queued > 0, "{queue:?}");
        let budget = status.budgets.iter().find(|it| it.bucket == "loadbalancer").context("no budget")?;
        let used: u64 = budget.history.iter().map(|step| step.calls).sum();
        ensure!(used > 0 && budget.history.iter().all(|step| step.calls <= 4), "{budget:?}");
        Ok(status)
    });
    let status = shown.await.unwrap();
    assert!(status.leader && status.adapter == "adapter-sim" && status.trouble.is_none(), "{status:?}");
    assert!(!status.cluster_id.is_empty(), "{status:?}");
    let page = eventually("the HTML page has the same text", WITHIN, || async {
        let page = bed.cluster.pods.look_at(ADAPTER)?.page("/").await?;
        let row = page.split("<tr>").find(|row| row.contains(&format!(">default/{name}<")));
        ensure!(row.is_some_and(|row| row.contains(WAITS)), "{row:?}");
        Ok(page)
    });
    let page = page.await.unwrap();
    assert!(!page.contains("<script") && !page.contains("src="), "{page}");
}

/// There is one Event, however often the numbers on the page change.
async fn the_event_says_so(bed: &Bed, name: &str) {
    let event = bed.wait_for_event("Service", name, "WaitingForBudget").await.unwrap();
    assert_eq!(event, format!("The load balancer {WAITS}"));
    let before = task(&status(bed).await.unwrap(), name).map(|task| task.waits_for.clone());
    let other = eventually("the numbers change", WITHIN, || async {
        let status = status(bed).await?;
        let now = task(&status, name).map(|task| task.waits_for.clone());
        ensure!(now.as_ref().ok() != before.as_ref().ok(), "{now:?}");
        Ok(())
    });
    other.await.unwrap();
    assert_eq!(bed.times("Service", name, "WaitingForBudget").await.unwrap(), 1);
}

async fn what_was_done_is_listed(bed: &Bed) {
    let made = eventually("a load balancer is created", WITHIN, || async {
        let status = status(bed).await?;
        let made = status.writes.iter().find(|write| write.operation == "CreateLoadBalancer");
        Ok(made.with_context(|| format!("{:?}", status.writes))?.clone())
    });
    let made = made.await.unwrap();
    assert_eq!((made.controller.as_str(), made.outcome.as_str()), ("service-controller", "ok"), "{made:?}");
    let object = made.object.clone().unwrap_or_default();
    assert!(SERVICES.iter().any(|name| object == format!("default/{name}")), "{made:?}");
    let counted = eventually("it is counted for this cluster", WITHIN, || async {
        let status = status(bed).await?;
        let own = status.clusters.first().filter(|it| it.own && it.cluster_id == status.cluster_id);
        ensure!(own.is_some_and(|it| it.load_balancers > 0), "{:?}", status.clusters);
        Ok(())
    });
    counted.await.unwrap();
}

/// Checks the page at the widths of a desktop and a phone, in light and dark mode, and keeps the screenshots.
fn fit_for_eyes(url: &str, dir: &Path) {
    let pictures = binaries().unwrap().with_file_name("e2e-artifacts");
    fs::create_dir_all(&pictures).unwrap();
    let mut browser = Browser::start(dir).unwrap();
    let mut grounds = Vec::new();
    for (width, dark) in [(1280, false), (1280, true), (390, false), (390, true)] {
        let seen = browser.look(url, Screenshot { width, dark }).unwrap();
        let name = format!("status-page-{width}-{}.png", if dark { "dark" } else { "light" });
        fs::write(pictures.join(&name), &seen.picture).unwrap();
        assert!(seen.width <= u64::from(width), "{name} is {} wide", seen.width);
        assert_eq!(seen.requests, [url], "{name} loads no other resource");
        assert_eq!(seen.complaints, Vec::<String>::new(), "{name}");
        grounds.push(browser.evaluate("getComputedStyle(document.body).backgroundColor").unwrap());
        let faint = browser.evaluate(FAINT).unwrap();
        assert_eq!(faint, json!([]), "{name}: texts whose contrast is below WCAG AA");
        let rows = browser.evaluate("document.querySelectorAll('#tasks tbody tr').length").unwrap();
        assert!(rows.as_u64() >= Some(1), "{name}: {rows} load balancers in progress");
        let unnamed = "[...document.querySelectorAll('table')].filter(it => !it.caption?.textContent).length";
        assert_eq!(browser.evaluate(unnamed).unwrap(), json!(0), "{name}: each table has a caption");
    }
    let as_preferred = matches!(grounds.as_slice(), [day, night, small_day, small_night]
        if day != night && day == small_day && night == small_night);
    assert!(as_preferred, "{grounds:?}");
}

/// The script that lists the texts whose contrast is below 4.5. Source: WCAG 2.2, success criterion 1.4.3 and "relative luminance".
const FAINT: &str = r"(() => {
    const parts = colour => colour.match(/[\d.]+/g).map(Number);
    const luminance = colour => {
        const [r, g, b] = parts(colour).map(it => it / 255).map(it => it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = it => {
        const colour = it ? getComputedStyle(it).backgroundColor : 'rgb(255, 255, 255)';
        return it && parts(colour)[3] === 0 ? ground(it.parentElement) : colour;
    };
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const faint = [];
    while (texts.nextNode()) {
        const text = texts.currentNode.textContent.trim(), parent = texts.currentNode.parentElement;
        if (!text) continue;
        const [one, other] = [getComputedStyle(parent).color, ground(parent)].map(luminance).sort((a, b) => b - a);
        if ((one + 0.05) / (other + 0.05) < 4.5) faint.push(text);
    }
    return faint;
})()";
