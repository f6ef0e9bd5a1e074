BEGIN TRANSACTION;
CREATE TABLE agent_messages (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                session_id TEXT NOT NULL,
                message_data TEXT NOT NULL,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                FOREIGN KEY (session_id) REFERENCES agent_sessions (session_id)
                    ON DELETE CASCADE
            );
INSERT INTO "agent_messages" VALUES(1,'basel-1','{"role": "user", "content": "Which platform for Basel?"}','2026-01-02 03:04:05');
INSERT INTO "agent_messages" VALUES(2,'basel-1','{"id": "rs_1", "summary": [{"text": "A look-up.", "type": "summary_text"}], "type": "reasoning"}','2026-01-02 03:04:05');
INSERT INTO "agent_messages" VALUES(3,'basel-1','{"arguments": "{\"to\":\"Basel\"}", "call_id": "call_1", "name": "platform", "type": "function_call", "id": "fc_1", "status": "completed"}','2026-01-02 03:04:05');
INSERT INTO "agent_messages" VALUES(4,'basel-1','{"type": "function_call_output", "call_id": "call_1", "output": "7"}','2026-01-02 03:04:05');
INSERT INTO "agent_messages" VALUES(5,'basel-1','{"id": "msg_1", "content": [{"annotations": [], "text": "Platform 7.", "type": "output_text"}], "role": "assistant", "status": "completed", "type": "message"}','2026-01-02 03:04:05');
INSERT INTO "agent_messages" VALUES(6,'bern-3','{"role": "user", "content": "Which platform for Basel?"}','2026-01-02 03:04:05');
CREATE TABLE agent_sessions (
                session_id TEXT PRIMARY KEY,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
            );
INSERT INTO "agent_sessions" VALUES('basel-1','2026-01-02 03:04:05','2026-01-02 03:04:05');
INSERT INTO "agent_sessions" VALUES('bern-3','2026-01-02 03:04:05','2026-01-02 03:04:05');
CREATE INDEX idx_agent_messages_session_id
            ON agent_messages (session_id, id)
        ;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('agent_messages',6);
COMMIT;
