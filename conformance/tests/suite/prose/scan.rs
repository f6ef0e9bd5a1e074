//! Extracts prose: from Markdown, from the documentation, comments and texts of Rust code, and from scripts
//! and settings.

/// Returns the blocks of prose with their first line numbers: paragraphs, list items, table cells, headings.
/// Excludes code, both blocks and inline code.
pub(super) fn blocks(text: &str) -> Vec<(usize, String)> {
    let (mut found, mut fenced, mut open) = (Vec::<(usize, String)>::new(), false, false);
    for (at, line) in text.lines().enumerate() {
        let (number, line) = (at + 1, line.trim());
        if line.starts_with("```") {
            (fenced, open) = (!fenced, false);
            continue;
        }
        if fenced || line.is_empty() || line.starts_with("<!--") {
            open = false;
            continue;
        }
        if line.starts_with('|') {
            open = false;
            found.extend(
                line.split('|')
                    .map(|cell| (number, cell.trim().to_owned()))
                    .filter(|(_, cell)| !cell.is_empty()),
            );
            continue;
        }
        let item = line.trim_start_matches(['-', '*', '#', '>', ' ']);
        let numbered = item.split_once(". ").filter(|(digits, _)| digits.parse::<u32>().is_ok());
        let begins = item.len() < line.len() && !line.starts_with("**") || numbered.is_some();
        let item = numbered.map_or(item, |(_, rest)| rest);
        match found.last_mut() {
            Some((_, block)) if open && !begins => {
                block.push(' ');
                block.push_str(line);
            }
            _ => found.push((number, if line.starts_with("**") { line } else { item }.to_owned())),
        }
        open = !line.starts_with('#');
    }
    found.into_iter().map(|(number, block)| (number, without_code(&block))).collect()
}

/// Returns the text without inline code and without emphasis.
pub(super) fn without_code(text: &str) -> String {
    let parts = text.replace("``", "`");
    let parts = parts.split('`').enumerate().map(|(at, part)| if at % 2 == 0 { part } else { "`…`" });
    parts.collect::<String>().replace("**", "").replace("`…`", "code")
}

/// Returns the documentation of Rust items as prose, with each line at its number.
pub(super) fn documentation(source: &str) -> String {
    let doc = |line: &str| {
        let line = line.trim_start();
        line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::to_owned).unwrap_or_default()
    };
    source.lines().map(doc).collect::<Vec<_>>().join("\n")
}

/// A comment or a text of a program, with its first line number.
pub(super) struct Prose {
    pub(super) line: usize,
    pub(super) text: String,
    pub(super) is_comment: bool,
}

/// Returns the comments and the string literals of Rust code, without documentation. Comments on consecutive
/// lines are one comment.
pub(super) fn rust(source: &str) -> Vec<Prose> {
    let mut found: Vec<Prose> = Vec::new();
    let (mut at, mut line, mut counted, mut comment_end) = (0, 1, 0, 0);
    while at < source.len() {
        let rest = &source[at..];
        line += source[counted..at].matches('\n').count();
        counted = at;
        if rest.starts_with("//") {
            let end = rest.find('\n').unwrap_or(rest.len());
            let text = rest[..end].trim_start_matches('/').trim();
            at += end;
            if rest.starts_with("///") || rest.starts_with("//!") {
                continue;
            }
            match found.last_mut() {
                Some(last) if last.is_comment && comment_end + 1 == line => {
                    last.text.push('\n');
                    last.text.push_str(text);
                }
                _ => found.push(Prose { line, text: text.to_owned(), is_comment: true }),
            }
            comment_end = line;
        } else if let Some((text, length)) = literal(rest, source[..at].chars().next_back()) {
            found.push(Prose { line, text, is_comment: false });
            at += length;
        } else if let Some(length) = character(rest) {
            at += length;
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    found
}

/// Returns the text of a string literal and the length of the literal in the code.
fn literal(rest: &str, before: Option<char>) -> Option<(String, usize)> {
    let in_word = before.is_some_and(|it| it.is_alphanumeric() || it == '_');
    let raw = rest.trim_start_matches(['b', 'c']);
    if let Some(marked) = raw.strip_prefix('r').filter(|_| !in_word && rest.len() - raw.len() <= 1) {
        let hashes = marked.len() - marked.trim_start_matches('#').len();
        if let Some(body) = marked[hashes..].strip_prefix('"') {
            let end = body.find(&format!("\"{}", "#".repeat(hashes)))?;
            let start = rest.len() - body.len();
            return Some((body[..end].to_owned(), start + end + 1 + hashes));
        }
    }
    let body = rest.strip_prefix('"')?;
    let mut escaped = false;
    let end = body.find(|it| {
        let ends = it == '"' && !escaped;
        escaped = it == '\\' && !escaped;
        ends
    })?;
    let lines = body[..end].split("\\\n").map(|line| line.trim_start());
    Some((lines.collect::<String>().replace("\\n", "\n"), end + 2))
}

/// Returns the length of a character literal, and nothing for a lifetime.
fn character(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('\'')?;
    let first = body.chars().next()?;
    let skipped = if first == '\\' { 2 } else { first.len_utf8() };
    let end = body.get(skipped..)?.find('\'')?;
    (first == '\\' || end == 0).then_some(1 + skipped + end + 1)
}

/// Returns the comments of a script or of a file with settings, and the messages that it prints.
pub(super) fn script(source: &str) -> Vec<Prose> {
    let mut found: Vec<Prose> = Vec::new();
    let mut comment_end = 0;
    for (at, line) in source.lines().enumerate() {
        let (number, line) = (at + 1, line.trim());
        let comment = line.strip_prefix('#').or_else(|| line.split_once(" # ").map(|(_, text)| text));
        let comment =
            comment.or_else(|| line.strip_prefix("//")).map(|text| text.trim_start_matches('#').trim());
        match (comment, found.last_mut()) {
            (Some(text), Some(last)) if last.is_comment && comment_end + 1 == number => {
                last.text.push('\n');
                last.text.push_str(text);
            }
            (Some(text), _) => {
                found.push(Prose { line: number, text: text.to_owned(), is_comment: true });
            }
            (None, _) => {
                let printed =
                    ["say \"", "die \"", "echo \"", "printf '", "sys.exit(f\"", "print(f\"", "step \""];
                let texts = printed.iter().filter_map(|begin| line.split_once(begin));
                found.extend(texts.map(|(_, text)| Prose {
                    line: number,
                    text: text.to_owned(),
                    is_comment: false,
                }));
            }
        }
        if comment.is_some() {
            comment_end = number;
        }
    }
    found
}
