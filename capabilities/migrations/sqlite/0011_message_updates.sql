-- Version 11: updates of messages in place. `updated_by` is the number of the event of the last update; NULL if the message was
-- never updated. The revision of a message is `updated_by`, or else `placed_by`, or else `seq`. An event of kind 6, updated, has
-- the number of its message as `up_to`, so that a replacement removes it with the message. It counts while the message has it as
-- `updated_by`. The results of updates with an idempotency key are in `removal_keys`.
ALTER TABLE messages ADD COLUMN updated_by INTEGER;
