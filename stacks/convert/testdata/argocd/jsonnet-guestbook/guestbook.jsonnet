local params = {}; {}
