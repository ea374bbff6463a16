# client
