use telemetry::report::{
    Breaker, BreakerState, BucketSample, Budget, ClusterObjects, Queue, Snapshot, Task, VendorWrite,
};

use super::{
    sections::sections,
    text::{Count, Escaped, Number, Seconds},
    *,
};

#[test]
fn foreign_texts_are_escaped_everywhere() {
    let evil = "<script>alert(\"1\" & '2')</script>";
    let text = || evil.to_owned();
    let status = AdapterStatus {
        adapter: text(),
        version: text(),
        instance_id: text(),
        cluster_id: text(),
        scope: Some(text()),
        trouble: Some(text()),
        leader_address: Some(text()),
        config_revision: text(),
        config_refused: Some(text()),
        budgets: vec![Budget { bucket: text(), ..Budget::default() }],
        queues: vec![Queue { bucket: text(), class: text(), controller: text(), ..Queue::default() }],
        breakers: vec![Breaker { family: text(), ..Breaker::default() }],
        snapshots: vec![Snapshot { collection: text(), error: Some(text()), ..Snapshot::default() }],
        clusters: vec![ClusterObjects { cluster_id: text(), ..ClusterObjects::default() }],
        tasks: vec![
            Task { name: text(), waits_for: text(), ..Task::default() },
            Task { key: text(), ..Task::default() },
        ],
        writes: vec![VendorWrite {
            operation: text(),
            object: Some(text()),
            controller: text(),
            outcome: text(),
            ..VendorWrite::default()
        }],
        ..AdapterStatus::default()
    };
    for leader in [true, false] {
        let page = document(&AdapterStatus { leader, ..status.clone() });
        assert!(!page.to_lowercase().contains("<script"), "{page}");
        let shown = "&lt;script&gt;alert(&quot;1&quot; &amp; &#39;2&#39;)&lt;/script&gt;";
        assert!(page.matches(shown).count() >= 20, "all texts are escaped: {page}");
    }
}

#[test]
fn invisible_characters_are_marked() {
    assert_eq!(Escaped("a\u{202e}b\0c\nd").to_string(), "a\u{fffd}b\u{fffd}c d");
}

#[test]
fn standby_page_shows_the_leader() {
    let standby = |leader_address| AdapterStatus { leader_address, ..AdapterStatus::default() };
    let known = document(&standby(Some("10.0.0.2:8443".to_owned())));
    assert!(known.contains("Standing by") && known.contains("<strong>10.0.0.2:8443</strong>"), "{known}");
    assert!(document(&standby(None)).contains("The leader is unknown."));
    let leads = document(&AdapterStatus { leader: true, ..AdapterStatus::default() });
    assert!(leads.contains("Serving") && !leads.contains("Standing by"), "{leads}");
}

#[test]
fn empty_page_says_what_is_missing() {
    let page = sections(&AdapterStatus::default());
    assert!(!page.contains("<table"), "{page}");
    for said in
        ["No call is queued.", "No load balancer is being changed.", "This process has changed nothing."]
    {
        assert!(page.contains(said), "{said}: {page}");
    }
}

#[test]
fn many_tasks_are_counted_by_cause() {
    let waits = |ahead| format!("waits for the call budget of bucket loadbalancer: {ahead} calls ahead");
    let task = |waits_for: String| Task { waits_for, ..Task::default() };
    let tasks = vec![task(waits(3)), task(waits(1)), task("the <load balancer> becomes active".to_owned())];
    let counted =
        "2 wait for the call budget of bucket loadbalancer, 1 × the &lt;load balancer&gt; becomes active</p>";
    let status = AdapterStatus { tasks, ..AdapterStatus::default() };
    let page = document(&status);
    assert!(page.contains(&format!("<p>3 under way: {counted}")), "{page}");
    let page = document(&AdapterStatus { more_tasks: 1_997, ..status });
    assert!(
        page.contains(&format!("<p>2,000 under way: of the oldest 3, which are shown, {counted}")),
        "{page}"
    );
}

#[test]
fn trouble_is_listed_first() {
    let snapshot = |collection: &str, error: Option<&str>| Snapshot {
        collection: collection.to_owned(),
        error: error.map(str::to_owned),
        ..Snapshot::default()
    };
    let breaker = |family: &str, state| Breaker { family: family.to_owned(), state, ..Breaker::default() };
    let budget =
        |bucket: &str, rate| Budget { bucket: bucket.to_owned(), rate, ceiling: 5.0, ..Budget::default() };
    let write = |operation: &str, outcome: &str| VendorWrite {
        operation: operation.to_owned(),
        outcome: outcome.to_owned(),
        ..VendorWrite::default()
    };
    let page = document(&AdapterStatus {
        snapshots: vec![snapshot("instances", None), snapshot("routes", Some("403"))],
        breakers: vec![breaker("compute", BreakerState::Closed), breaker("network", BreakerState::Open)],
        budgets: vec![budget("compute-calls", 5.0), budget("slow-calls", 1.0)],
        writes: vec![write("CreateListener", "ok"), write("CreateRoute", "403"), write("CreateRoute", "404")],
        ..AdapterStatus::default()
    });
    for [first, second] in [["routes", "instances"], ["network", "compute"], ["slow-calls", "compute-calls"]]
    {
        let row = |name: &str| page.find(&format!("<th scope=\"row\">{name}</th>")).expect(name);
        assert!(row(first) < row(second), "{first}: {page}");
    }
    assert!(page.contains("<p>2 of 3 failed: 2 × CreateRoute</p>"), "{page}");
}

#[test]
fn each_cluster_is_a_row_with_its_owner() {
    let cluster = |id: &str, own, load_balancers, routes| {
        let cluster_id = id.to_owned();
        ClusterObjects { cluster_id, own, load_balancers, routes }
    };
    let clusters = vec![cluster("a", true, 3, 1_200), cluster("", false, 1, 0), cluster("b", false, 0, 7)];
    let page = document(&AdapterStatus { clusters, ..AdapterStatus::default() });
    let cells = |row: &str| {
        let cells = row.split("<div>").skip(1).filter_map(|it| it.split("</div>").next());
        cells.map(str::to_owned).collect::<Vec<_>>()
    };
    let section = page.split("<section id=\"clusters\">").nth(1).expect("the section exists");
    let section = section.split("</section>").next().expect("the section ends");
    let rows: Vec<_> = section.split("<tr>").skip(2).map(cells).collect();
    assert_eq!(rows, [["this cluster", "3", "1,200"], ["untagged", "1", "0"], ["another cluster", "0", "7"]]);
}

#[test]
fn tables_have_captions_and_headers() {
    let budget = Budget { bucket: "compute".to_owned(), ..Budget::default() };
    let page = document(&AdapterStatus { budgets: vec![budget], ..AdapterStatus::default() });
    for part in
        ["<caption><h2>Budgets</h2>", "<th scope=\"col\">Bucket</th>", "<th scope=\"row\">compute</th>"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn charts_stay_inside_their_frame() {
    let step = |seconds_ago, calls, queued, rate| BucketSample { seconds_ago, calls, queued, rate };
    for history in [
        vec![],
        vec![step(0, 0, 0, 0.0)],
        vec![step(3, u64::MAX, u64::MAX, 5.0), step(8, 0, 0, 1e300), step(100_000, 7, 7, 0.5)],
    ] {
        let budget = Budget { history, ..Budget::default() };
        let page = document(&AdapterStatus { budgets: vec![budget], ..AdapterStatus::default() });
        for path in page.split("<path class=\"").skip(1).filter_map(|rest| rest.split(" d=\"").nth(1)) {
            let numbers = path.split('"').next().unwrap_or_default();
            for number in
                numbers.split(|it: char| !(it.is_ascii_digit() || it == '.')).filter(|it| !it.is_empty())
            {
                let number: f64 = number.parse().expect("a number");
                assert!((0.0..=240.0).contains(&number), "{numbers}");
            }
            assert!(!numbers.contains("NaN") && !numbers.contains("inf"), "{numbers}");
        }
    }
}

#[test]
fn numbers_are_formatted_for_reading() {
    let seconds = |seconds| Seconds(seconds).to_string();
    assert_eq!(
        [0.0, 2.54, 12.9, 60.0, 75.0, 3_600.0, 3_700.0, -1.0].map(seconds),
        ["0 s", "2.5 s", "12 s", "1 min", "1 min 15 s", "1 h", "1 h 1 min", "0 s"]
    );
    assert_eq!([5.0, 4.56, 0.123].map(|number| Number(number).to_string()), ["5", "4.6", "0.12"]);
    assert_eq!(
        [0, 999, 1_000, 1_234_567].map(|count| Count(count).to_string()),
        ["0", "999", "1,000", "1,234,567"]
    );
}

#[test]
fn the_policy_names_the_hash_of_the_style() {
    assert!(!STYLE.contains("url(") && !STYLE.contains("@import"), "no external resources");
    assert!(policy().contains("style-src 'sha256-"));
}
