/* Made by tools/golden_branches.py with PyTorch 1.13.0a0: do not edit. */
static const struct golden_note golden_notes_mc_net_two[] = {
    {0, 0, "loss", 1.4388651}, {0, 0, "supervised", 0.97694507}, {0, 0, "ce", 0.60941269}, {0, 0,
    "dice", 0.97694507}, {0, 0, "consistency", 0.457033408}, {0, 0, "weight", 1.01069205}, {0, 0,
    "gradient", 2.82891601}, {0, 1, "loss", 1.43179232}, {0, 1, "supervised", 0.962052634}, {0, 1,
    "ce", 0.641845561}, {0, 1, "dice", 0.962052634}, {0, 1, "consistency", 0.464770337}, {0, 1,
    "weight", 1.01069205}, {0, 1, "gradient", 3.659129}, {0, 2, "loss", 1.40349046}, {0, 2,
    "supervised", 0.976885559}, {0, 2, "ce", 0.509892347}, {0, 2, "dice", 0.976885559}, {0, 2,
    "consistency", 0.422091869}, {0, 2, "weight", 1.01069205}, {0, 2, "gradient", 3.37230277}, {0,
    3, "loss", 1.39664263}, {0, 3, "supervised", 0.950988834}, {0, 3, "ce", 0.643335434}, {0, 3,
    "dice", 0.950988834}, {0, 3, "consistency", 0.440939254}, {0, 3, "weight", 1.01069205}, {0, 3,
    "gradient", 3.4606598}, {0, 4, "loss", 1.4857282}, {0, 4, "supervised", 0.974209578}, {0, 4,
    "ce", 0.570946796}, {0, 4, "dice", 0.974209578}, {0, 4, "consistency", 0.5061073}, {0, 4,
    "weight", 1.01069205}, {0, 4, "gradient", 2.9075015}, {0, 5, "loss", 1.28108963}, {0, 5,
    "supervised", 0.966851929}, {0, 5, "ce", 0.53936926}, {0, 5, "dice", 0.966851929}, {0, 5,
    "consistency", 0.3109134}, {0, 5, "weight", 1.01069205}, {0, 5, "gradient", 2.02270115}, {0, 6,
    "loss", 1.45943645}, {0, 6, "supervised", 0.959553205}, {0, 6, "ce", 0.568236859}, {0, 6,
    "dice", 0.959553205}, {0, 6, "consistency", 0.494595007}, {0, 6, "weight", 1.01069205}, {0, 6,
    "gradient", 3.12037544}, {0, 7, "loss", 1.38584772}, {0, 7, "supervised", 0.966152569}, {0, 7,
    "ce", 0.590478765}, {0, 7, "dice", 0.966152569}, {0, 7, "consistency", 0.415255226}, {0, 7,
    "weight", 1.01069205}, {0, 7, "gradient", 2.51250652}, {0, 8, "loss", 1.37517739}, {0, 8,
    "supervised", 0.952040298}, {0, 8, "ce", 0.625557704}, {0, 8, "dice", 0.952040298}, {0, 8,
    "consistency", 0.418660754}, {0, 8, "weight", 1.01069205}, {0, 8, "gradient", 2.17915345}, {0,
    9, "loss", 1.35562142}, {0, 9, "supervised", 0.976974422}, {0, 9, "ce", 0.556384798}, {0, 9,
    "dice", 0.976974422}, {0, 9, "consistency", 0.374641317}, {0, 9, "weight", 1.01069205}, {0, 9,
    "gradient", 2.6110991}
};
static const struct golden_note golden_notes_mc_net_three[] = {
    {0, 0, "loss", 1.40878728}, {0, 0, "supervised", 1.36762158}, {0, 0, "ce", 0.786892549}, {0, 0,
    "dice", 0.976872555}, {0, 0, "consistency", 0.472561349}, {0, 0, "weight", 0.0871118732}, {0, 0,
    "gradient", 0.13423036}, {0, 1, "loss", 1.47503017}, {0, 1, "supervised", 1.3847233}, {0, 1,
    "ce", 0.880445839}, {0, 1, "dice", 0.98908807}, {0, 1, "consistency", 0.443091219}, {0, 1,
    "weight", 0.20381102}, {0, 1, "gradient", 0.205992786}, {0, 2, "loss", 1.56402722}, {0, 2,
    "supervised", 1.38163843}, {0, 2, "ce", 0.930248993}, {0, 2, "dice", 0.986884596}, {0, 2,
    "consistency", 0.422716891}, {0, 2, "weight", 0.431467932}, {0, 2, "gradient", 0.337935566}, {0,
    3, "loss", 1.80439721}, {0, 3, "supervised", 1.37425894}, {0, 3, "ce", 1.00591294}, {0, 3,
    "dice", 0.981613526}, {0, 3, "consistency", 0.520436978}, {0, 3, "weight", 0.826494441}, {0, 3,
    "gradient", 0.62176728}, {0, 4, "loss", 2.14277887}, {0, 4, "supervised", 1.37664296}, {0, 4,
    "ce", 1.30515121}, {0, 4, "dice", 0.983316396}, {0, 4, "consistency", 0.534815419}, {0, 4,
    "weight", 1.43252398}, {0, 4, "gradient", 1.14397703}, {0, 5, "loss", 2.28097156}, {0, 5,
    "supervised", 1.37391364}, {0, 5, "ce", 0.996988415}, {0, 5, "dice", 0.981366886}, {0, 5,
    "consistency", 0.403738907}, {0, 5, "weight", 2.24664482}, {0, 5, "gradient", 1.91863906}, {0,
    6, "loss", 3.05225639}, {0, 6, "supervised", 1.37055491}, {0, 6, "ce", 1.0504627}, {0, 6,
    "dice", 0.978967794}, {0, 6, "consistency", 0.527486583}, {0, 6, "weight", 3.18814076}, {0, 6,
    "gradient", 2.81545598}, {0, 7, "loss", 3.07779335}, {0, 7, "supervised", 1.37827056}, {0, 7,
    "ce", 1.02361298}, {0, 7, "dice", 0.984478973}, {0, 7, "consistency", 0.415160365}, {0, 7,
    "weight", 4.09365377}, {0, 7, "gradient", 3.7298503}, {0, 8, "loss", 3.37687452}, {0, 8,
    "supervised", 1.38446851}, {0, 8, "ce", 1.02255869}, {0, 8, "dice", 0.988906078}, {0, 8,
    "consistency", 0.41891177}, {0, 8, "weight", 4.75614712}, {0, 8, "gradient", 4.12955394}, {0, 9,
    "loss", 3.56639845}, {0, 9, "supervised", 1.37479876}, {0, 9, "ce", 1.37539579}, {0, 9, "dice",
    0.981999115}, {0, 9, "consistency", 0.438319938}, {0, 9, "weight", 5}, {0, 9, "gradient",
    4.26257195}
};
static const struct golden_note golden_notes_mc_net_plus_two[] = {
    {0, 0, "loss", 3.19686203}, {0, 0, "supervised", 1.45463939}, {0, 0, "ce", 0.777746143}, {0, 0,
    "dice", 0.969759593}, {0, 0, "consistency", 1.72379178}, {0, 0, "weight", 1.01069205}, {0, 0,
    "gradient", 3.09061818}, {0, 1, "loss", 3.25300829}, {0, 1, "supervised", 1.44172783}, {0, 1,
    "ce", 0.861762891}, {0, 1, "dice", 0.961151887}, {0, 1, "consistency", 1.79211903}, {0, 1,
    "weight", 1.01069205}, {0, 1, "gradient", 3.26059209}, {0, 2, "loss", 3.32280159}, {0, 2,
    "supervised", 1.44809239}, {0, 2, "ce", 0.664981807}, {0, 2, "dice", 0.965394926}, {0, 2,
    "consistency", 1.85487677}, {0, 2, "weight", 1.01069205}, {0, 2, "gradient", 2.50996824}, {0, 3,
    "loss", 3.28155136}, {0, 3, "supervised", 1.44361085}, {0, 3, "ce", 0.761515873}, {0, 3, "dice",
    0.962407236}, {0, 3, "consistency", 1.81849705}, {0, 3, "weight", 1.01069205}, {0, 3,
    "gradient", 3.8196857}, {0, 4, "loss", 3.21785017}, {0, 4, "supervised", 1.45006967}, {0, 4,
    "ce", 0.762024833}, {0, 4, "dice", 0.966713114}, {0, 4, "consistency", 1.74907926}, {0, 4,
    "weight", 1.01069205}, {0, 4, "gradient", 3.02271359}, {0, 5, "loss", 3.08102403}, {0, 5,
    "supervised", 1.4435717}, {0, 5, "ce", 0.743811654}, {0, 5, "dice", 0.962381133}, {0, 5,
    "consistency", 1.62012983}, {0, 5, "weight", 1.01069205}, {0, 5, "gradient", 2.86341324}, {0, 6,
    "loss", 3.25669715}, {0, 6, "supervised", 1.45121667}, {0, 6, "ce", 0.86506928}, {0, 6, "dice",
    0.967477781}, {0, 6, "consistency", 1.78638041}, {0, 6, "weight", 1.01069205}, {0, 6,
    "gradient", 3.48504153}, {0, 7, "loss", 3.20354735}, {0, 7, "supervised", 1.44488361}, {0, 7,
    "ce", 0.801604137}, {0, 7, "dice", 0.963255737}, {0, 7, "consistency", 1.74005895}, {0, 7,
    "weight", 1.01069205}, {0, 7, "gradient", 2.88840614}, {0, 8, "loss", 3.06372413}, {0, 8,
    "supervised", 1.45358591}, {0, 8, "ce", 0.776884884}, {0, 8, "dice", 0.969057275}, {0, 8,
    "consistency", 1.59310466}, {0, 8, "weight", 1.01069205}, {0, 8, "gradient", 3.33767375}, {0, 9,
    "loss", 3.24357623}, {0, 9, "supervised", 1.46129374}, {0, 9, "ce", 0.748490166}, {0, 9, "dice",
    0.97419583}, {0, 9, "consistency", 1.76342782}, {0, 9, "weight", 1.01069205}, {0, 9, "gradient",
    2.6254459}
};
static const struct golden_note golden_notes_mc_net_plus_three[] = {
    {0, 0, "loss", 1.57884351}, {0, 0, "supervised", 1.4823972}, {0, 0, "ce", 0.905612618}, {0, 0,
    "dice", 0.9882648}, {0, 0, "consistency", 1.10715458}, {0, 0, "weight", 0.0871118732}, {0, 0,
    "gradient", 0.20150788}, {0, 1, "loss", 1.70924602}, {0, 1, "supervised", 1.46326475}, {0, 1,
    "ce", 1.01409818}, {0, 1, "dice", 0.975509831}, {0, 1, "consistency", 1.20690859}, {0, 1,
    "weight", 0.20381102}, {0, 1, "gradient", 0.43328418}, {0, 2, "loss", 1.95317833}, {0, 2,
    "supervised", 1.48248053}, {0, 2, "ce", 1.02920538}, {0, 2, "dice", 0.988320355}, {0, 2,
    "consistency", 1.09092186}, {0, 2, "weight", 0.431467932}, {0, 2, "gradient", 0.91980034}, {0,
    3, "loss", 2.44903954}, {0, 3, "supervised", 1.47207491}, {0, 3, "ce", 0.954752916}, {0, 3,
    "dice", 0.981383276}, {0, 3, "consistency", 1.18205832}, {0, 3, "weight", 0.826494441}, {0, 3,
    "gradient", 1.53242989}, {0, 4, "loss", 3.10126437}, {0, 4, "supervised", 1.48243856}, {0, 4,
    "ce", 0.95977299}, {0, 4, "dice", 0.988292371}, {0, 4, "consistency", 1.13005146}, {0, 4,
    "weight", 1.43252398}, {0, 4, "gradient", 2.97048591}, {0, 5, "loss", 4.13885454}, {0, 5,
    "supervised", 1.46365835}, {0, 5, "ce", 1.0545203}, {0, 5, "dice", 0.975772236}, {0, 5,
    "consistency", 1.19075172}, {0, 5, "weight", 2.24664482}, {0, 5, "gradient", 4.96360526}, {0, 6,
    "loss", 5.28061509}, {0, 6, "supervised", 1.47918746}, {0, 6, "ce", 0.985147056}, {0, 6, "dice",
    0.986124971}, {0, 6, "consistency", 1.19236506}, {0, 6, "weight", 3.18814076}, {0, 6,
    "gradient", 5.51308742}, {0, 7, "loss", 6.24795056}, {0, 7, "supervised", 1.4712733}, {0, 7,
    "ce", 0.958432678}, {0, 7, "dice", 0.980848864}, {0, 7, "consistency", 1.16684936}, {0, 7,
    "weight", 4.09365377}, {0, 7, "gradient", 9.76194724}, {0, 8, "loss", 6.71760397}, {0, 8,
    "supervised", 1.48256173}, {0, 8, "ce", 1.06573846}, {0, 8, "dice", 0.988374485}, {0, 8,
    "consistency", 1.10068972}, {0, 8, "weight", 4.75614712}, {0, 8, "gradient", 10.8239546}, {0, 9,
    "loss", 7.05085797}, {0, 9, "supervised", 1.46413825}, {0, 9, "ce", 1.01463722}, {0, 9, "dice",
    0.976092169}, {0, 9, "consistency", 1.11734394}, {0, 9, "weight", 5}, {0, 9, "gradient",
    10.8089789}
};
static const struct golden_run golden_runs_mc_net[] = {
    {.name = "mc_net_two", .classes = 2, .channels = 1, .has_mask = 1, .labeled = 5, .unlabeled = 6,
     .notes = golden_notes_mc_net_two, .n_notes = 70, .prototypes = NULL,
     .set = {.method = (char[]){"mc-net"}, .seed = 61, .steps = 10, .patch = {32, 32, 32}, .batch =
             4, .labeled_batch = 2, .filters = 2, .dropout = NET_DROPOUT_BOTH, .augment =
             AUGMENT_CROP, .dice_share = 0.5, .optimizer = OPTIM_SGD, .schedule = SCHEDULE_STEP, .lr
             = 0.0002, .momentum = 0.9, .weight_decay = 0.1, .clip = 0.0, .ema_decay = 0.99,
             .consistency = 150.0, .teacher_noise = 0.1, .ramp = RAMP_STEPS, .sup_dice = 1,
             .ssn_rank = 8, .mc_samples = 6, .ged_metric = GED_CLASS_MEAN, .head_norm = 0, .nb_rule
             = NB_CENTRED, .bcl_layout = BCL_CORRECT, .bcl_reduce = BCL_MEAN, .bcl_cap = 150,
             .lambda_c = 0.09, .bcl_tau = 0.07, .proto_ckpt = PROTO_LAST, .proto_update = 1,
             .lambda_r = 0.1, .pcl_tau = 100.0, .pcl_ignore_bg = 1, .pcl_cov = PCL_DIAGONAL,
             .pseudo_weight = 1.0, .pseudo_threshold = 0.0, .stage2_init = STAGE2_FRESH, .stage2_cov
             = 0, .stage2_paste = 0, .stage2_share = 1.0, .stages = 2, .paste_warmup = 0.25,
             .paste_size = 0.6666666666666666, .paste_weight = 0.5}},
    {.name = "mc_net_three", .classes = 3, .channels = 2, .has_mask = 1, .labeled = 5, .unlabeled = 6,
     .notes = golden_notes_mc_net_three, .n_notes = 70, .prototypes = NULL,
     .set = {.method = (char[]){"mc-net"}, .seed = 62, .steps = 10, .patch = {32, 32, 32}, .batch =
             3, .labeled_batch = 2, .filters = 2, .dropout = NET_DROPOUT_BOTH, .augment =
             AUGMENT_CROP, .dice_share = 0.7, .optimizer = OPTIM_SGD, .schedule = SCHEDULE_POLY, .lr
             = 0.0001, .momentum = 0.9, .weight_decay = 0.1, .clip = 0.0, .ema_decay = 0.99,
             .consistency = 5.0, .teacher_noise = 0.1, .ramp = RAMP_CONTINUOUS, .sup_dice = 1,
             .ssn_rank = 8, .mc_samples = 6, .ged_metric = GED_CLASS_MEAN, .head_norm = 0, .nb_rule
             = NB_CENTRED, .bcl_layout = BCL_CORRECT, .bcl_reduce = BCL_MEAN, .bcl_cap = 150,
             .lambda_c = 0.09, .bcl_tau = 0.07, .proto_ckpt = PROTO_LAST, .proto_update = 1,
             .lambda_r = 0.1, .pcl_tau = 100.0, .pcl_ignore_bg = 1, .pcl_cov = PCL_DIAGONAL,
             .pseudo_weight = 1.0, .pseudo_threshold = 0.0, .stage2_init = STAGE2_FRESH, .stage2_cov
             = 0, .stage2_paste = 0, .stage2_share = 1.0, .stages = 2, .paste_warmup = 0.25,
             .paste_size = 0.6666666666666666, .paste_weight = 0.5}},
    {.name = "mc_net_plus_two", .classes = 2, .channels = 1, .has_mask = 1, .labeled = 5, .unlabeled = 6,
     .notes = golden_notes_mc_net_plus_two, .n_notes = 70, .prototypes = NULL,
     .set = {.method = (char[]){"mc-net-plus"}, .seed = 63, .steps = 10, .patch = {32, 32, 32},
             .batch = 4, .labeled_batch = 2, .filters = 2, .dropout = NET_DROPOUT_BOTH, .augment =
             AUGMENT_CROP, .dice_share = 0.5, .optimizer = OPTIM_SGD, .schedule = SCHEDULE_STEP, .lr
             = 0.0002, .momentum = 0.9, .weight_decay = 0.1, .clip = 0.0, .ema_decay = 0.99,
             .consistency = 150.0, .teacher_noise = 0.1, .ramp = RAMP_STEPS, .sup_dice = 1,
             .ssn_rank = 8, .mc_samples = 6, .ged_metric = GED_CLASS_MEAN, .head_norm = 0, .nb_rule
             = NB_CENTRED, .bcl_layout = BCL_CORRECT, .bcl_reduce = BCL_MEAN, .bcl_cap = 150,
             .lambda_c = 0.09, .bcl_tau = 0.07, .proto_ckpt = PROTO_LAST, .proto_update = 1,
             .lambda_r = 0.1, .pcl_tau = 100.0, .pcl_ignore_bg = 1, .pcl_cov = PCL_DIAGONAL,
             .pseudo_weight = 1.0, .pseudo_threshold = 0.0, .stage2_init = STAGE2_FRESH, .stage2_cov
             = 0, .stage2_paste = 0, .stage2_share = 1.0, .stages = 2, .paste_warmup = 0.25,
             .paste_size = 0.6666666666666666, .paste_weight = 0.5}},
    {.name = "mc_net_plus_three", .classes = 3, .channels = 2, .has_mask = 1, .labeled = 5, .unlabeled = 6,
     .notes = golden_notes_mc_net_plus_three, .n_notes = 70, .prototypes = NULL,
     .set = {.method = (char[]){"mc-net-plus"}, .seed = 64, .steps = 10, .patch = {32, 32, 32},
             .batch = 3, .labeled_batch = 2, .filters = 2, .dropout = NET_DROPOUT_BOTH, .augment =
             AUGMENT_CROP, .dice_share = 0.5, .optimizer = OPTIM_SGD, .schedule = SCHEDULE_POLY, .lr
             = 0.0001, .momentum = 0.9, .weight_decay = 0.1, .clip = 0.0, .ema_decay = 0.99,
             .consistency = 5.0, .teacher_noise = 0.1, .ramp = RAMP_CONTINUOUS, .sup_dice = 1,
             .ssn_rank = 8, .mc_samples = 6, .ged_metric = GED_CLASS_MEAN, .head_norm = 0, .nb_rule
             = NB_CENTRED, .bcl_layout = BCL_CORRECT, .bcl_reduce = BCL_MEAN, .bcl_cap = 150,
             .lambda_c = 0.09, .bcl_tau = 0.07, .proto_ckpt = PROTO_LAST, .proto_update = 1,
             .lambda_r = 0.1, .pcl_tau = 100.0, .pcl_ignore_bg = 1, .pcl_cov = PCL_DIAGONAL,
             .pseudo_weight = 1.0, .pseudo_threshold = 0.0, .stage2_init = STAGE2_FRESH, .stage2_cov
             = 0, .stage2_paste = 0, .stage2_share = 1.0, .stages = 2, .paste_warmup = 0.25,
             .paste_size = 0.6666666666666666, .paste_weight = 0.5}},
};
