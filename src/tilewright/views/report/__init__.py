"""The page to hand in: a view of records. One module a section; blocks are what sections hold."""
