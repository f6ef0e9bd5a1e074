-- Version 9: fences. The greatest fencing token with which a write on the thread succeeded; NULL if it is not fenced.
ALTER TABLE threads ADD COLUMN fence INTEGER;
