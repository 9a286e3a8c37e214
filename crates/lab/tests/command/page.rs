//! The report, in a real browser.
//!
//! Where Chromium is not installed, the test is skipped and says so.

use serde_json::json;

use crate::program::lab;
use superpoll_test_support::browser::{Tab, browser};

#[test]
fn the_report_fits_any_width_is_readable_by_day_and_night_and_asks_for_nothing() {
    let Some(browser) = browser() else {
        println!("skipped: no Chromium to show the report in");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let short = ["--quick", "--seconds", "0.1", "--repetitions", "1"];
    for experiment in [
        &["atr", "--total", "30", "--active", "1,15,30"][..],
        &["mix", "--size", "5/20", "--load", "mixed"],
        &["registrations", "--total", "16", "--kind", "pipe"],
        &["timers", "--timers", "50,500", "--ending", "10"],
    ] {
        let output =
            lab().current_dir(folder.path()).args(experiment).args(short).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let page = folder.path().join("superpoll-report/index.html");
    let profile = tempfile::tempdir().unwrap();
    let (_browser, mut tab) = Tab::open(browser, profile.path());
    for (width, dark) in [(1280, false), (400, true), (400, false), (1280, true)] {
        tab.resize(width, dark);
        tab.call("Page.navigate", json!({ "url": format!("file://{}", page.display()) }));
        tab.until(
            "document.readyState === 'complete' && document.querySelectorAll('h2').length >= 6",
        );
        assert!(tab.fits(), "at {width}");
        // Content that is wider than the page scrolls within itself.
        let boxes = "[...document.querySelectorAll('.wide,figure')].every(e => \
                     e.getBoundingClientRect().right <= window.innerWidth + 1)";
        assert_eq!(tab.evaluate(boxes), true, "at {width}");
        // The words of a plot have the same colour as the page's words.
        let same = "getComputedStyle(document.querySelector('figure svg text')).fill === \
                    getComputedStyle(document.body).color";
        assert_eq!(tab.evaluate(same), true, "dark: {dark}");
        let light = "(c => c[0] + c[1] + c[2] > 380)(getComputedStyle(document.body).backgroundColor\
                     .match(/[0-9]+/g).map(Number))";
        assert_eq!(tab.evaluate(light), !dark, "dark: {dark}");
        assert_eq!(tab.evaluate("performance.getEntriesByType('resource').length"), 0);
        let claims = tab.evaluate("document.querySelectorAll('#claims ~ ul.claims > li').length");
        assert!(claims.as_u64().unwrap() >= 40, "{claims}");
        assert!(tab.picture(&format!("report-{width}-{dark}")) > 10_000);
    }
    assert!(tab.complaints.is_empty(), "{:?}", tab.complaints);
}
