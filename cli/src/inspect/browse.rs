//! An interactive view of a survey in a terminal.
//!
//! [`App`] contains the view's state and its key handling, independent of a terminal. Only [`run`] uses one.

use larder::Stores;
use larder_kernel::{BlobKey, BoardId, BucketName, CollectionName, Result, Thread};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, List, ListState, Paragraph, Tabs};

use super::detail::{Detail, Subject, load};
use super::show::{at, bytes, statuses};
use super::survey::{self, Survey};
use crate::thread::printable;

/// The number of lines that a page key moves.
const PAGE_LINES: usize = 10;
const HELP: &str = " ←→ contract  ↑↓ line  Enter look into  Esc back  r read again  q end ";

/// The state of the view.
struct App {
    url: String,
    namespace: String,
    tabs: Vec<Tab>,
    tab: usize,
    detail: Option<(Detail, usize)>,
    /// The last error.
    trouble: Option<String>,
}

/// The tab of one contract.
struct Tab {
    title: String,
    rows: Vec<(String, Option<Subject>)>,
    list: ListState,
}

/// The action of a key.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Stay,
    Load(Subject),
    Refresh,
    End,
}

/// Shows the survey until the user quits.
pub(crate) async fn run(url: String, stores: Stores, survey: Survey) -> std::result::Result<(), String> {
    let limit = survey.limit;
    let mut app = App::new(&url, &survey);
    let mut terminal = ratatui::init();
    let ended = loop {
        if let Err(error) = terminal.draw(|frame| app.draw(frame)) {
            break Err(format!("cannot write to the terminal: {error}"));
        }
        let step = match tokio::task::block_in_place(event::read) {
            Ok(Event::Key(key)) => app.key(key),
            Ok(_) => Step::Stay,
            Err(error) => break Err(format!("cannot read from the terminal: {error}")),
        };
        match step {
            Step::Stay => {}
            Step::Load(subject) => app.loaded(load(&stores, &subject).await),
            Step::Refresh => app.refreshed(survey::take(&stores, limit).await),
            Step::End => break Ok(()),
        }
    };
    ratatui::restore();
    ended
}

impl App {
    fn new(url: &str, survey: &Survey) -> Self {
        let (url, namespace) = (printable(url), printable(&survey.namespace));
        Self { url, namespace, tabs: tabs(survey), tab: 0, detail: None, trouble: None }
    }

    fn key(&mut self, key: KeyEvent) -> Step {
        if key.kind == KeyEventKind::Release {
            return Step::Stay;
        }
        self.trouble = None;
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return Step::End,
            KeyCode::Char('q') => return Step::End,
            KeyCode::Char('r') => return Step::Refresh,
            KeyCode::Esc | KeyCode::Backspace => self.detail = None,
            KeyCode::Up | KeyCode::Char('k') => self.up(1),
            KeyCode::Down | KeyCode::Char('j') => self.down(1),
            KeyCode::PageUp => self.up(PAGE_LINES),
            KeyCode::PageDown => self.down(PAGE_LINES),
            KeyCode::Home => self.up(usize::MAX),
            KeyCode::End => self.down(usize::MAX),
            KeyCode::Right | KeyCode::Tab => self.turn(1),
            KeyCode::Left | KeyCode::BackTab => self.turn(self.tabs.len().saturating_sub(1)),
            KeyCode::Enter => return self.enter(),
            _ => {}
        }
        Step::Stay
    }

    /// Moves `by` tabs to the right, and wraps around.
    fn turn(&mut self, by: usize) {
        self.detail = None;
        self.tab = (self.tab + by).checked_rem(self.tabs.len()).unwrap_or(0);
    }

    fn up(&mut self, by: usize) {
        match (&mut self.detail, self.tabs.get_mut(self.tab)) {
            (Some((_, scrolled)), _) => *scrolled = scrolled.saturating_sub(by),
            (None, Some(tab)) => tab.select(tab.list.selected().unwrap_or(0).saturating_sub(by)),
            (None, None) => {}
        }
    }

    fn down(&mut self, by: usize) {
        match (&mut self.detail, self.tabs.get_mut(self.tab)) {
            (Some((detail, scrolled)), _) => {
                *scrolled = scrolled.saturating_add(by).min(detail.lines.len().saturating_sub(1));
            }
            (None, Some(tab)) => tab.select(tab.list.selected().unwrap_or(0).saturating_add(by)),
            (None, None) => {}
        }
    }

    fn enter(&mut self) -> Step {
        if self.detail.is_some() {
            return Step::Stay;
        }
        let tab = self.tabs.get(self.tab);
        let row = tab.and_then(|tab| tab.rows.get(tab.list.selected()?));
        row.and_then(|(_, subject)| subject.clone()).map_or(Step::Stay, Step::Load)
    }

    fn loaded(&mut self, detail: Result<Detail>) {
        match detail {
            Ok(detail) => self.detail = Some((detail, 0)),
            Err(error) => self.trouble = Some(error.to_string()),
        }
    }

    fn refreshed(&mut self, survey: Result<Survey>) {
        match survey {
            Ok(survey) => {
                let (tab, before) = (self.tab, std::mem::take(&mut self.tabs));
                self.tabs = tabs(&survey);
                for (new, old) in self.tabs.iter_mut().zip(before) {
                    new.select(old.list.selected().unwrap_or(0));
                }
                (self.tab, self.detail) = (tab, None);
            }
            Err(error) => self.trouble = Some(error.to_string()),
        }
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let rows = [Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)];
        let [top, middle, bottom] = Layout::vertical(rows).areas(frame.area());
        let titles = self.tabs.iter().map(|tab| Line::from(tab.title.clone()));
        let chosen = Style::new().add_modifier(Modifier::REVERSED);
        frame.render_widget(Tabs::new(titles).select(self.tab).highlight_style(chosen), top);
        let place = format!(" {}, namespace {} ", self.url, self.namespace);
        match (&self.detail, self.tabs.get_mut(self.tab)) {
            (Some((detail, scrolled)), _) => {
                let lines: Vec<Line<'_>> =
                    detail.lines.iter().skip(*scrolled).map(|line| Line::from(line.as_str())).collect();
                let block = Block::bordered().title(format!(" {} ", detail.title));
                frame.render_widget(Paragraph::new(lines).block(block), middle);
            }
            (None, Some(tab)) => {
                let items = tab.rows.iter().map(|(text, _)| text.as_str());
                let list = List::new(items).block(Block::bordered().title(place)).highlight_style(chosen);
                frame.render_stateful_widget(list, middle, &mut tab.list);
            }
            (None, None) => {
                let block = Block::bordered().title(place);
                frame.render_widget(Paragraph::new("no contract").block(block), middle);
            }
        }
        let last = self.trouble.as_deref().unwrap_or(HELP);
        frame.render_widget(Paragraph::new(last), bottom);
    }
}

impl Tab {
    fn new(title: String, rows: Vec<(String, Option<Subject>)>) -> Self {
        let rows = rows.into_iter().map(|(text, subject)| (printable(&text), subject)).collect();
        let mut tab = Self { title, rows, list: ListState::default() };
        tab.select(0);
        tab
    }

    /// Selects the row, or the last row if the index is too large.
    fn select(&mut self, row: usize) {
        let last = self.rows.len().checked_sub(1);
        self.list.select(last.map(|last| row.min(last)));
    }
}

/// Returns one tab for each contract in the survey.
fn tabs(survey: &Survey) -> Vec<Tab> {
    let count = |count: usize, cut: bool| if cut { format!("{count}+") } else { count.to_string() };
    let mut tabs = Vec::new();
    if let Some(history) = &survey.history {
        let row = |row: &survey::ThreadRow| {
            let (size, last) = (bytes(row.bytes), at(row.last_at));
            let text =
                format!("{}/{}  {} messages, {size}, last {last}", row.agent, row.session, row.messages);
            (text, Thread::new(&row.agent, &row.session).ok().map(Subject::Thread))
        };
        let title = format!("threads {}", count(history.items.len(), history.cut));
        tabs.push(Tab::new(title, history.items.iter().map(row).collect()));
    }
    if let Some(vectors) = &survey.vectors {
        let row = |row: &survey::CollectionRow| {
            let text =
                format!("{}  {} documents of {} dimensions", row.collection, row.documents, row.dimensions);
            (text, CollectionName::new(&row.collection).ok().map(Subject::Collection))
        };
        let title = format!("collections {}", count(vectors.items.len(), vectors.cut));
        tabs.push(Tab::new(title, vectors.items.iter().map(row).collect()));
    }
    if let Some(graph) = &survey.graph {
        let rows = vec![
            (format!("{} entities", graph.entities), Some(Subject::Entities)),
            (format!("{} relationships", graph.relationships), Some(Subject::Relationships)),
        ];
        tabs.push(Tab::new("graph".to_owned(), rows));
    }
    if let Some(blobs) = &survey.blobs {
        let row = |item: &survey::BlobItem| {
            let text = format!("{}  {}, {}", item.key, bytes(item.bytes), at(Some(item.modified_at)));
            (text, BlobKey::new(&item.key).ok().map(Subject::Blob))
        };
        let title = format!("blobs {}", count(blobs.items.len(), blobs.cut));
        tabs.push(Tab::new(title, blobs.items.iter().map(row).collect()));
    }
    if let Some(tasks) = &survey.tasks {
        let row = |row: &survey::BoardRow| {
            let text = format!("{}/{}  {}", row.conversation, row.agent, statuses(row));
            (text, BoardId::new(&row.conversation, &row.agent).ok().map(Subject::Board))
        };
        let title = format!("boards {}", count(tasks.items.len(), tasks.cut));
        tabs.push(Tab::new(title, tasks.items.iter().map(row).collect()));
    }
    if let Some(buckets) = &survey.key_value {
        let row = |row: &survey::BucketRow| {
            let text = format!("{}  {} keys, {}", row.bucket, row.keys, bytes(row.bytes));
            (text, BucketName::new(&row.bucket).ok().map(Subject::Bucket))
        };
        let title = format!("buckets {}", count(buckets.items.len(), buckets.cut));
        tabs.push(Tab::new(title, buckets.items.iter().map(row).collect()));
    }
    tabs
}

#[cfg(test)]
mod tests;
