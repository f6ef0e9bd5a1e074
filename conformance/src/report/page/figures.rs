//! The tables of figures: the levels beyond the cases, and the latencies of the methods.

use std::fmt::Write as _;

use larder_kernel::Contract;

use super::{again, counted, duration, escape, grouped, verdict_mark};
use crate::latency::Latency;
use crate::level::LevelReport;
use crate::report::{Report, json};

pub(super) fn levels(page: &mut String, report: &Report) {
    if report.levels.is_empty() {
        return;
    }
    page.push_str(
        "<section id=\"levels\" aria-labelledby=\"levels-title\"><h2 id=\"levels-title\">Levels beyond the \
         cases</h2>\n<p class=\"muted\">Each level runs until enough operations prove it; a level with fewer \
         operations is not proven.</p>\n<div class=\"scroll\"><table><thead><tr><th \
         scope=\"col\">level</th><th scope=\"col\">contract</th><th scope=\"col\">verdict</th><th \
         scope=\"col\">executed</th><th scope=\"col\" class=\"optional\">took</th></tr></thead>\n",
    );
    for backend in &report.backends {
        let own: Vec<&LevelReport> =
            report.levels.iter().filter(|level| level.backend == backend.name).collect();
        if own.is_empty() {
            continue;
        }
        let _ = write!(
            page,
            "<tbody><tr class=\"group\"><th colspan=\"5\" scope=\"rowgroup\">{}</th></tr>\n",
            escape(&backend.name)
        );
        own.into_iter().for_each(|level| level_row(page, report, level));
        page.push_str("</tbody>\n");
    }
    page.push_str("</table></div></section>\n");
}

fn level_row(page: &mut String, report: &Report, level: &LevelReport) {
    let (sign, class) = verdict_mark(level.verdict());
    let share = (level.executed.saturating_mul(100) / level.required.max(1)).min(100);
    let _ = write!(
        page,
        "<tr><th scope=\"row\">{}</th><td>{}</td><td><span class=\"tag {class}\">{sign} {}</span></td>\
         <td><span class=\"bar optional\" aria-hidden=\"true\"><i style=\"width:{share}%\"></i></span>{} of \
         {} {}",
        level.level.as_str(),
        level.contract.map_or("whole backend", Contract::as_str),
        level.verdict().as_str(),
        grouped(level.executed),
        grouped(level.required),
        level.unit,
    );
    let more = level.notes.len() + level.counterexamples.len() + usize::from(level.trouble.is_some());
    if more > 0 {
        details(page, report, level);
    }
    let took = duration(level.elapsed_us.saturating_mul(1_000));
    let _ = write!(page, "</td><td class=\"number optional\">{took}</td></tr>\n");
}

fn details(page: &mut String, report: &Report, level: &LevelReport) {
    let summary = match level.counterexamples.len() {
        0 => counted(level.notes.len() + usize::from(level.trouble.is_some()), "note"),
        count => counted(count, "counterexample"),
    };
    let _ = write!(page, "<details><summary>{summary}</summary><ul>");
    for note in level.notes.iter().chain(&level.trouble) {
        let _ = write!(page, "<li>{}</li>", escape(note));
    }
    page.push_str("</ul>");
    for found in &level.counterexamples {
        let waived = level.waived.get(found.clause).map_or_else(String::new, |waived| {
            let reason = escape(&waived.reason);
            format!("<p><span class=\"tag waived\">~ waived</span> until {}: {reason}</p>", waived.expires)
        });
        let command =
            report.again_level(level, found.seed).map_or_else(String::new, |command| again(&command));
        let _ = write!(
            page,
            "<div class=\"found\"><p><a href=\"#{0}\"><b>{0}</b></a> {1} (seed \
             {2})</p>{waived}<pre>{3}</pre>{command}</div>",
            found.clause,
            escape(&found.finding),
            found.seed,
            escape(&found.script)
        );
    }
    page.push_str("</details>");
}

pub(super) fn latency(page: &mut String, report: &Report) {
    if report.latencies.is_empty() {
        return;
    }
    let jobs =
        if report.jobs > 0 { format!(" with up to {} concurrent cases", report.jobs) } else { String::new() };
    let _ = write!(
        page,
        "<section id=\"latency\" aria-labelledby=\"latency-title\"><h2 id=\"latency-title\">Latency</h2>\n<p \
         class=\"muted\">p50 of the successful calls of the cases, with p99 and their number below{jobs}, in \
         a {} build. The figures compare backends under this load; they are not a benchmark.</p>\n",
        json::build()
    );
    for &contract in Contract::ALL {
        let of: Vec<&Latency> = report.latencies.iter().filter(|own| own.contract == contract).collect();
        let columns: Vec<&str> = report
            .backends
            .iter()
            .map(|backend| backend.name.as_str())
            .filter(|name| of.iter().any(|own| own.backend == *name))
            .collect();
        let mut methods: Vec<&str> = of.iter().map(|own| own.method).collect();
        methods.sort_unstable();
        methods.dedup();
        if methods.is_empty() {
            continue;
        }
        let _ = write!(
            page,
            "<details open><summary>{contract}</summary><div class=\"scroll\" tabindex=\"0\" role=\"region\" \
             aria-label=\"Latency of {contract}\"><table><thead><tr><th scope=\"col\">method</th>"
        );
        columns.iter().for_each(|name| _ = write!(page, "<th scope=\"col\">{}</th>", escape(name)));
        page.push_str("</tr></thead><tbody>\n");
        for method in methods {
            let _ = write!(page, "<tr><th scope=\"row\">{method}</th>");
            for name in &columns {
                let own = of.iter().find(|own| own.method == method && own.backend == *name);
                page.push_str(&own.map_or_else(|| "<td>·</td>".to_owned(), |own| cell(own)));
            }
            page.push_str("</tr>\n");
        }
        page.push_str("</tbody></table></div></details>\n");
    }
    page.push_str("</section>\n");
}

fn cell(own: &Latency) -> String {
    let errors = counted(own.errors, "error");
    if own.count == 0 {
        return format!("<td title=\"{errors}\"><small>{errors}</small></td>");
    }
    let count = grouped(u64::try_from(own.count).unwrap_or(u64::MAX));
    format!(
        "<td title=\"longest {}, {errors}\">{}<small>p99 {} · {count}×</small></td>",
        duration(own.max_ns),
        duration(own.p50_ns),
        duration(own.p99_ns)
    )
}
