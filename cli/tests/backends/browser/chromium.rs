//! A headless Chromium, driven through its protocol over a pipe, without a driver program and without a port.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The time limit of one reply, on a busy machine.
const ANSWER_MAX: Duration = Duration::from_secs(40);

/// A browser with one page open.
pub(crate) struct Page {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    events: VecDeque<Value>,
    next: u64,
    session: String,
    _profile: tempfile::TempDir,
}

impl Page {
    /// Starts the program and opens a file.
    pub(crate) fn open(program: &Path, file: &Path) -> Self {
        let profile = tempfile::tempdir().unwrap();
        // The protocol uses the file descriptors 3 and 4, which only a shell can redirect.
        let mut child = Command::new("sh")
            .args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#])
            .arg(program)
            .args(["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu"])
            .args(["--disable-dev-shm-usage", "--hide-scrollbars", "--disable-background-networking"])
            // Root may not use the sandbox; the page is ours.
            .args(["--no-sandbox", "--force-color-profile=srgb", "--allow-file-access-from-files"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let (sender, messages) = mpsc::channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while output.read_until(0, &mut message).is_ok_and(|length| length > 0) {
                message.pop();
                let sent = serde_json::from_slice(&message).map(|value| sender.send(value));
                if !matches!(sent, Ok(Ok(()))) {
                    break;
                }
                message.clear();
            }
        });
        let mut page = Self {
            child,
            input,
            messages,
            events: VecDeque::new(),
            next: 0,
            session: String::new(),
            _profile: profile,
        };
        let target = page.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached =
            page.call("Target.attachToTarget", json!({"targetId": target["targetId"], "flatten": true}));
        page.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable", "Network.enable"] {
            page.call(domain, json!({}));
        }
        page.call("Page.navigate", json!({"url": format!("file://{}", file.display())}));
        page.wait_for("Page.loadEventFired");
        page
    }

    /// Calls a method of the protocol and returns its result.
    #[allow(clippy::needless_pass_by_value, reason = "every caller makes it for the call")]
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut message = json!({"id": id, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = serde_json::to_vec(&message).unwrap();
        bytes.push(0);
        self.input.write_all(&bytes).unwrap();
        self.input.flush().unwrap();
        loop {
            let message = self.receive(method);
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.events.push_back(message);
        }
    }

    fn receive(&mut self, what: &str) -> Value {
        let answer = self.messages.recv_timeout(ANSWER_MAX);
        answer.unwrap_or_else(|error| panic!("Chromium did not answer {what}: {error}"))
    }

    fn wait_for(&mut self, method: &str) {
        while !self.events.iter().any(|event| event["method"] == method) {
            let message = self.receive(method);
            self.events.push_back(message);
        }
    }

    /// Returns the events of a kind so far.
    pub(crate) fn events(&self, method: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["method"] == method).collect()
    }

    /// Returns the value of an expression on the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", parameters);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub(crate) fn until(&mut self, expression: &str) {
        let begun = Instant::now();
        while self.value(expression) != Value::Bool(true) {
            assert!(begun.elapsed() < ANSWER_MAX, "it never came true: {expression}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Clicks the middle of the element. Asserts that nothing covers it.
    pub(crate) fn click(&mut self, selector: &str) {
        let place = self.value(&format!(
            "(() => {{ const found = document.querySelector({0}); if (!found) return 'nothing'; \
             found.scrollIntoView({{block: 'center', inline: 'center', behavior: 'instant'}}); \
             const box = found.getBoundingClientRect(); const x = box.x + box.width / 2, y = box.y + \
             box.height / 2; \
             const top = document.elementFromPoint(x, y); \
             return found === top || found.contains(top) ? [x, y] : 'under ' + (top && \
             top.outerHTML.slice(0, 80)); }})()",
            json!(selector)
        ));
        let (Some(x), Some(y)) = (place[0].as_f64(), place[1].as_f64()) else {
            panic!("{selector} cannot be clicked: {place}");
        };
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Types text into the focused element.
    pub(crate) fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Presses and releases a key.
    pub(crate) fn press(&mut self, key: &str) {
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            "/" => 191,
            _ => 0,
        };
        let text = match key {
            "Enter" => "\r",
            "/" => "/",
            _ => "",
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code});
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Sets the size of the window and its color scheme, `light` or `dark`.
    pub(crate) fn look(&mut self, width: u32, height: u32, scheme: &str) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features);
    }

    /// Returns a screenshot as PNG: the second of two equal ones, because a slow machine paints in parts.
    pub(crate) fn picture(&mut self, file: &Path) {
        let mut last = String::new();
        for _ in 0..20 {
            self.value("new Promise(done => requestAnimationFrame(() => setTimeout(done, 60)))");
            let answer = self.call("Page.captureScreenshot", json!({"format": "png"}));
            let picture = answer["data"].as_str().unwrap().to_owned();
            if picture == last {
                break;
            }
            last = picture;
        }
        std::fs::write(file, decode(&last)).unwrap();
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // Closes the browser by the protocol, so that its helpers end too; kills it if it does not react.
        let bye = json!({"id": 0, "method": "Browser.close"}).to_string() + "\0";
        let _ = self.input.write_all(bye.as_bytes()).and_then(|()| self.input.flush());
        for _ in 0..100 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Encodes Base64, in the alphabet of RFC 4648.
fn decode(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'=').map(value).collect();
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.chunks(4) {
        let bits = (0..4).fold(0_u32, |bits, at| bits << 6 | u32::from(group.get(at).copied().unwrap_or(0)));
        bytes.extend(&bits.to_be_bytes()[1..group.len()]);
    }
    bytes
}
