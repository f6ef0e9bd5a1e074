//! The document that defines a workflow.

use std::collections::HashSet;

use larder_kernel::{Error, Result};
use serde::{Deserialize, Serialize};

use super::ordered::Ordered;

const OPERATION: &str = "workflow.spec";
/// The longest name of a state or an event, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// The longest prompt task or description, in bytes.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// The largest number of states in a workflow.
const STATES_MAX: usize = 256;
/// The largest number of events of a state.
const EVENTS_MAX: usize = 64;
/// The largest number of transitions in one run, so that its history fits into one value of the store.
const TRANSITIONS_MAX: u32 = 1_000;
/// The default limit on transitions in one turn.
const TURN_TRANSITIONS_DEFAULT: u32 = 16;

/// The party that continues after a transition into a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Control {
    /// The user continues: the transition is committed at the end of the turn.
    #[default]
    User,
    /// The agent continues: the transition is committed immediately, and the turn continues.
    Agent,
}

/// The lifetime of a state's conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Persistence {
    /// The conversation lasts as long as the visit. Each entry begins a new one.
    Transient,
    /// The conversation is stored, and each entry continues it.
    #[default]
    Persistent,
}

/// A single state of a workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct StateSpec {
    /// The name of the state's prompt.
    pub prompt_task: String,
    /// The purpose of the state, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The lifetime of the conversation; `persistent` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistence: Option<Persistence>,
    /// The party that continues after a transition into the state; `user` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Control>,
    /// The events that leave the state, with their target states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_event: Option<Ordered<String>>,
    /// `true` if the workflow ends here; `false` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<bool>,
}

impl StateSpec {
    /// Creates a state with this prompt.
    #[must_use]
    pub fn new(prompt_task: impl Into<String>) -> Self {
        Self {
            prompt_task: prompt_task.into(),
            description: None,
            persistence: None,
            control: None,
            on_event: None,
            terminal: None,
        }
    }

    /// Returns the lifetime of the conversation.
    #[must_use]
    pub fn persistence(&self) -> Persistence {
        self.persistence.unwrap_or_default()
    }

    /// Returns the party that continues after a transition into the state.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.unwrap_or_default()
    }

    /// Returns `true` if the workflow ends here.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.terminal.unwrap_or_default()
    }

    /// Returns the events that leave the state, in document order.
    pub fn events(&self) -> impl Iterator<Item = &str> {
        self.on_event.iter().flat_map(Ordered::names)
    }

    /// Returns the target state of an event.
    #[must_use]
    pub fn target(&self, event: &str) -> Option<&str> {
        self.on_event.as_ref()?.get(event).map(String::as_str)
    }

    /// Returns `true` if a chain of transitions ends here, because the state has its own prompt and
    /// conversation.
    pub(crate) fn lands(&self) -> bool {
        self.is_terminal() || self.control() == Control::User
    }

    /// Sets the purpose of the state, for the model.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Sets the lifetime of the conversation.
    #[must_use]
    pub fn with_persistence(mut self, persistence: impl Into<Option<Persistence>>) -> Self {
        self.persistence = persistence.into();
        self
    }

    /// Sets the party that continues after a transition into the state.
    #[must_use]
    pub fn with_control(mut self, control: impl Into<Option<Control>>) -> Self {
        self.control = control.into();
        self
    }

    /// Sets the events that leave the state, with their target states.
    #[must_use]
    pub fn with_on_event(mut self, on_event: impl Into<Option<Ordered<String>>>) -> Self {
        self.on_event = on_event.into();
        self
    }

    /// Sets [`terminal`](Self::terminal).
    #[must_use]
    pub fn with_terminal(mut self, terminal: bool) -> Self {
        self.terminal = Some(terminal);
        self
    }
}

/// The definition of a workflow: its states, and the events that lead from one to another.
///
/// Without `initial`, the workflow begins in the first state of the document. A document with contradictions
/// or unknown fields is rejected. The error contains the path of the field.
///
/// ```
/// use larder_agents::workflow::WorkflowSpec;
///
/// let spec = WorkflowSpec::from_json(
///     r#"{"states": {
///         "intake": {
///             "prompt_task": "greeting",
///             "persistence": "transient",
///             "on_event": {"Escalate": "specialist"}
///         },
///         "specialist": {"prompt_task": "specialist", "persistence": "persistent"}
///     }}"#,
/// )?;
/// assert_eq!(spec.initial(), "intake");
///
/// let error =
///     WorkflowSpec::from_json(r#"{"states": {"a": {"prompt_task": "a", "on_event": {"Go": "b"}}}}"#);
/// assert!(error.unwrap_err().to_string().contains("states.a.on_event.Go"));
/// # Ok::<(), larder_kernel::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub struct WorkflowSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    initial: Option<String>,
    states: Ordered<StateSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_transitions: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_transitions_per_turn: Option<u32>,
}

/// The document before validation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    initial: Option<String>,
    states: Ordered<StateSpec>,
    #[serde(default)]
    max_transitions: Option<u32>,
    #[serde(default)]
    max_transitions_per_turn: Option<u32>,
}

impl TryFrom<Written> for WorkflowSpec {
    type Error = Error;

    fn try_from(written: Written) -> Result<Self> {
        let Written { initial, states, max_transitions, max_transitions_per_turn } = written;
        let spec = Self { initial, states, max_transitions, max_transitions_per_turn };
        spec.check()?;
        Ok(spec)
    }
}

impl WorkflowSpec {
    /// Reads and checks a document.
    ///
    /// # Errors
    /// `InvalidInput` with the field. The message contains its path, such as `states.triage.on_event.Routed`.
    pub fn from_json(json: &str) -> Result<Self> {
        let mut document = serde_json::Deserializer::from_str(json);
        let written: Written = serde_path_to_error::deserialize(&mut document).map_err(|error| {
            let path = error.path().to_string();
            Error::invalid(OPERATION, field_of(&path), format!("{path}: {}", error.inner()))
        })?;
        document.end().map_err(|error| Error::invalid(OPERATION, "workflow", error.to_string()))?;
        written.try_into()
    }

    /// Returns the state in which a run begins.
    #[must_use]
    pub fn initial(&self) -> &str {
        match &self.initial {
            Some(initial) => initial,
            None => self.states.names().next().unwrap_or_default(),
        }
    }

    /// Returns the states, in document order.
    #[must_use]
    pub fn states(&self) -> &Ordered<StateSpec> {
        &self.states
    }

    /// Returns a state by its name.
    #[must_use]
    pub fn state(&self, name: &str) -> Option<&StateSpec> {
        self.states.get(name)
    }

    /// Returns the largest number of transitions in one run; 1,000 by default.
    #[must_use]
    pub fn max_transitions(&self) -> u32 {
        self.max_transitions.unwrap_or(TRANSITIONS_MAX)
    }

    /// Returns the largest number of transitions in one turn. The default is 16, or the limit of the run if
    /// that is lower.
    #[must_use]
    pub fn max_transitions_per_turn(&self) -> u32 {
        self.max_transitions_per_turn.unwrap_or(TURN_TRANSITIONS_DEFAULT.min(self.max_transitions()))
    }

    fn check(&self) -> Result<()> {
        if self.states.is_empty() {
            return Err(wrong("states", "states", "has no states; define at least one"));
        }
        at_most("states", "states", self.states.len(), STATES_MAX)?;
        for (name, state) in self.states.iter() {
            check_name("states", "states", name)?;
            self.check_state(name, state)?;
        }
        self.check_initial()?;
        self.check_bounds()?;
        self.check_terminals()
    }

    fn check_state(&self, name: &str, state: &StateSpec) -> Result<()> {
        let path = |field: &str| format!("states.{name}.{field}");
        if state.prompt_task.is_empty() {
            return Err(wrong("prompt_task", &path("prompt_task"), "empty"));
        }
        at_most("prompt_task", &path("prompt_task"), state.prompt_task.len(), TEXT_BYTES_MAX)?;
        let description = state.description.as_deref().unwrap_or_default();
        at_most("description", &path("description"), description.len(), TEXT_BYTES_MAX)?;
        at_most("on_event", &path("on_event"), state.events().count(), EVENTS_MAX)?;
        for (event, target) in state.on_event.iter().flat_map(Ordered::iter) {
            check_name("on_event", &path("on_event"), event)?;
            if self.state(target).is_none() {
                return Err(wrong(
                    "on_event",
                    &path(&format!("on_event.{event}")),
                    "leads to a state that is not defined; define it",
                ));
            }
        }
        let leaves = state.events().next().is_some();
        if state.is_terminal() && leaves {
            return Err(wrong(
                "on_event",
                &path("on_event"),
                "has events, but the state is terminal; remove one of them",
            ));
        }
        if state.control() == Control::Agent && !state.is_terminal() && !leaves {
            return Err(wrong(
                "control",
                &path("control"),
                "has no events, so an agent could never leave the state; add an event",
            ));
        }
        Ok(())
    }

    fn check_initial(&self) -> Result<()> {
        match self.state(self.initial()) {
            None => Err(wrong("initial", "initial", "is not a defined state; define it")),
            Some(state) if state.is_terminal() => {
                Err(wrong("initial", "initial", "is a terminal state; begin in another state"))
            }
            Some(_) => Ok(()),
        }
    }

    fn check_bounds(&self) -> Result<()> {
        let within = |field: &'static str, value: u32, limit: u32| match value {
            0 => Err(Error::under_limit(OPERATION, field, 0, 1)),
            value if value > limit => Err(Error::over_limit(OPERATION, field, value.into(), limit.into())),
            _ => Ok(()),
        };
        within("max_transitions", self.max_transitions(), TRANSITIONS_MAX)?;
        within("max_transitions_per_turn", self.max_transitions_per_turn(), self.max_transitions())
    }

    /// Rejects terminal states that no event leads to, because they are probably a typo. Other unreachable
    /// states are allowed: a document may list states before it connects them.
    fn check_terminals(&self) -> Result<()> {
        let mut reached = HashSet::from([self.initial()]);
        let mut next = vec![self.initial()];
        while let Some(state) = next.pop().and_then(|name| self.state(name)) {
            for (_, target) in state.on_event.iter().flat_map(Ordered::iter) {
                if reached.insert(target) {
                    next.push(target);
                }
            }
        }
        let lost = self.states.iter().find(|(name, state)| state.is_terminal() && !reached.contains(name));
        lost.map_or(Ok(()), |(name, _)| {
            Err(wrong(
                "terminal",
                &format!("states.{name}.terminal"),
                "cannot be reached from the initial state; add an event or remove the state",
            ))
        })
    }
}

fn wrong(field: &'static str, path: &str, rule: &str) -> Error {
    Error::invalid(OPERATION, field, format!("{path}: {rule}"))
}

fn at_most(field: &'static str, path: &str, actual: usize, limit: usize) -> Result<()> {
    let size = larder_kernel::check::size;
    if actual > limit {
        return Err(wrong(field, path, "over the limit; reduce it").with_limit(size(actual), size(limit)));
    }
    Ok(())
}

fn check_name(field: &'static str, path: &str, name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(wrong(field, path, "is empty; write a name"));
    }
    if name.chars().any(char::is_control) {
        return Err(wrong(field, path, "contains a control character; remove it"));
    }
    at_most(field, path, name.len(), NAME_BYTES_MAX)
}

/// Returns the last field of a path, for error messages.
fn field_of(path: &str) -> &'static str {
    const FIELDS: [&str; 10] = [
        "max_transitions_per_turn",
        "max_transitions",
        "initial",
        "prompt_task",
        "description",
        "persistence",
        "control",
        "on_event",
        "terminal",
        "states",
    ];
    path.rsplit('.').find_map(|part| FIELDS.into_iter().find(|field| *field == part)).unwrap_or("workflow")
}
