// Reads and writes messages of the PostgreSQL protocol, version 3.

/** The client sent bytes that are not a valid message. */
export class ProtocolError extends Error {}

/** Yields messages: the type as one character, and all bytes, including type and length. */
export function* messages(bytes) {
    for (let at = 0; at + 5 <= bytes.length; ) {
        const end = at + 1 + bytes.readInt32BE(at + 1);
        yield { type: String.fromCharCode(bytes[at]), bytes: bytes.subarray(at, end) };
        at = end;
    }
}

/** Splits a stream into messages. The first messages of a connection have no type. */
export class Cutter {
    #rest = Buffer.alloc(0);
    #typed = false;

    push(chunk) {
        this.#rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    }

    /** Expects a type in all further messages. */
    started() {
        this.#typed = true;
    }

    /** Returns the next message, or `null` if it is incomplete. */
    next(limit) {
        const head = this.#typed ? 5 : 4;
        if (this.#rest.length < head) return null;
        const length = this.#rest.readInt32BE(head - 4);
        if (length < 4 || length > limit) throw new ProtocolError(`the length of a message is ${length}; it must be 4 to ${limit}`);
        const end = length + head - 4;
        if (this.#rest.length < end) return null;
        const bytes = this.#rest.subarray(0, end);
        this.#rest = this.#rest.subarray(end);
        return { type: this.#typed ? String.fromCharCode(bytes[0]) : "", bytes };
    }
}

/** Returns a message with a type. */
export function message(type, ...parts) {
    const body = Buffer.concat(parts.map((part) => (typeof part === "string" ? Buffer.from(`${part}\0`) : part)));
    const head = Buffer.alloc(5);
    head.write(type, 0, "latin1");
    head.writeInt32BE(body.length + 4, 1);
    return Buffer.concat([head, body]);
}

export function int32(value) {
    const bytes = Buffer.alloc(4);
    bytes.writeInt32BE(value);
    return bytes;
}

/** Returns the text up to the next zero byte, and the position after it. */
export function cstring(bytes, at) {
    const end = bytes.indexOf(0, at);
    if (end < 0) throw new ProtocolError("a text has no zero byte at its end");
    return { value: bytes.toString("utf8", at, end), next: end + 1 };
}

/** Returns the parameters of a startup message. */
export function startupParameters(bytes) {
    const parameters = new Map();
    for (let at = 8; at < bytes.length && bytes[at] !== 0; ) {
        const name = cstring(bytes, at);
        const value = cstring(bytes, name.next);
        parameters.set(name.value, value.value);
        at = value.next;
    }
    return parameters;
}

export function failure(severity, code, words) {
    const field = (kind, value) => Buffer.concat([Buffer.from(kind), Buffer.from(value), Buffer.alloc(1)]);
    return message(
        "E", field("S", severity), field("V", severity), field("C", code), field("M", words), Buffer.alloc(1),
    );
}
