//! The pages of the guide. Doctests compile and run their programs.

macro_rules! pages {
    ($($name:ident = $file:literal;)*) => {
        $(#[doc = include_str!(concat!("../../guide/src/", $file))] mod $name {})*
    };
}

pages! {
    quick_start = "quick-start.md";
    choosing = "choosing.md";
    history = "contracts/history.md";
    vectors = "contracts/vectors.md";
    graph = "contracts/graph.md";
    blobs = "contracts/blobs.md";
    tasks = "contracts/tasks.md";
    key_value = "contracts/key-value.md";
    chat = "cookbook/chat.md";
    documents = "cookbook/documents.md";
    checkpoints = "cookbook/checkpoints.md";
    tool_calls = "cookbook/tool-calls.md";
    counter = "cookbook/counter.md";
    run_twice = "cookbook/run-twice.md";
    all_contracts = "cookbook/all-contracts.md";
    retrieval = "cookbook/retrieval.md";
    workers = "cookbook/workers.md";
    graph_memory = "cookbook/graph-memory.md";
    tenants = "cookbook/tenants.md";
    moving = "cookbook/moving.md";
    layers = "layers.md";
    operations = "operations.md";
    reports = "reports.md";
}
