//! Formats measurements as a Markdown table with minimum, median and ratios. The minimum is the best figure, because
//! other load on the machine can only add time.

use std::time::Duration;

use super::{Measured, SpeedSample};

type Figure = fn(&SpeedSample) -> Duration;

/// Formats the measurements of all runtimes.
#[must_use]
pub fn table(all: &[Measured]) -> String {
    let mut text = String::from(
        "| what | through windlass (min / median) | bare (min / median) | ratio of minima / of medians |\n\
         |---|--:|--:|--:|\n",
    );
    for one in all {
        let figures: [(&str, Figure); 3] = [
            ("whole run", |sample| sample.whole),
            ("its steps", |sample| sample.steps),
            ("CPU of windlass alone", |sample| sample.cpu),
        ];
        for (what, figure) in figures {
            let ours = spread(one.pairs.iter().map(|(ours, _)| figure(ours)));
            let bare = spread(one.pairs.iter().map(|(_, bare)| figure(bare)));
            let ratios = format!("{:.3}× / {:.3}×", ours.0 / bare.0, ours.1 / bare.1);
            text.push_str(&format!(
                "| {}, {what} | {} | {} | {ratios} |\n",
                one.name,
                format_spread(ours),
                format_spread(bare)
            ));
        }
        for (what, times) in [
            ("the model thinks", &one.cancel_thinking),
            ("a command runs", &one.cancel_command),
        ] {
            let figure = spread(times.iter().copied());
            text.push_str(&format!(
                "| {}, cancel while {what} | {} | – | – |\n",
                one.name,
                format_spread(figure)
            ));
        }
    }
    text
}

fn format_spread((min, median): (f64, f64)) -> String {
    format!("{min:.0} / {median:.0} ms")
}

/// Returns the minimum and the median in milliseconds, or NaN without measurements.
fn spread(times: impl Iterator<Item = Duration>) -> (f64, f64) {
    let mut times: Vec<f64> = times.map(|time| time.as_secs_f64() * 1e3).collect();
    times.sort_by(f64::total_cmp);
    let at = |at: usize| times.get(at).copied().unwrap_or(f64::NAN);
    (at(0), at(times.len() / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_minima_and_medians() {
        let sample = |whole: u64| {
            let whole = Duration::from_millis(whole);
            SpeedSample {
                whole,
                steps: whole / 2,
                cpu: whole * 2,
                requests: 3,
                bytes: 9,
            }
        };
        let pairs = vec![
            (sample(105), sample(100)),
            (sample(300), sample(150)),
            (sample(200), sample(200)),
        ];
        let measured = Measured {
            name: "an-agent".to_owned(),
            pairs,
            cancel_thinking: vec![Duration::from_millis(20), Duration::from_millis(30)],
            cancel_command: Vec::new(),
        };
        let text = table(&[measured]);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines[0],
            "| an-agent, whole run | 105 / 200 ms | 100 / 150 ms | 1.050× / 1.333× |"
        );
        assert_eq!(
            lines[3],
            "| an-agent, cancel while the model thinks | 20 / 30 ms | – | – |"
        );
        assert_eq!(
            lines[4],
            "| an-agent, cancel while a command runs | NaN / NaN ms | – | – |"
        );
    }
}
