import a

def f():
    log()
    pass
